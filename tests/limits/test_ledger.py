"""The books of a limit, on a clock that the tests turn."""

from __future__ import annotations

import math
import sys
from collections import deque
from types import FrameType
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reward_loop.config import RateLimitConfig
from reward_loop.limits import ledger as ledger_module
from reward_loop.limits.ledger import LONGEST_HALT_S, TAKE_OVER_S, UNSTATED_HALT_S, Ledger, Ticket
from reward_loop.limits.pace import SLOW_DOWN


def ledger_of(takes_over: bool = False, **limits: Any) -> Ledger:
    return Ledger(RateLimitConfig(**limits), 0.0, takes_over=takes_over)


def granted(ledger: Ledger, now: float) -> list[Ticket]:
    return list(iter(lambda: ledger.grant(now), None))


def times(ledger: Ledger, tickets: list[Ticket], release: bool = True) -> list[float]:
    """Let everyone through as soon as the ledger says; returns when each went."""
    now = 0.0
    while ledger.waiting:
        due = ledger.due()
        assert due is not None
        now = max(now, due)
        for ticket in granted(ledger, now):
            if release:
                ledger.leave(ticket, now)
    return [ticket.granted_at for ticket in tickets]


# -- rates -----------------------------------------------------------------------------------------------------------


def test_without_limits_everyone_goes_at_once() -> None:
    ledger = ledger_of()
    tickets = [ledger.ask(0.0, tokens=10**6) for _ in range(1000)]
    assert granted(ledger, 0.0) == tickets


def test_a_burst_of_one_second_goes_at_once_and_the_rest_at_the_rate() -> None:
    ledger = ledger_of(max_rpm=300)
    assert times(ledger, [ledger.ask(0.0) for _ in range(15)]) == pytest.approx([0.0] * 5 + [n / 5 for n in range(1, 11)])


def test_a_slow_rate_lets_one_request_go_at_once() -> None:
    ledger = ledger_of(max_rpm=6)
    assert times(ledger, [ledger.ask(0.0) for _ in range(3)]) == pytest.approx([0.0, 10.0, 20.0])


def test_tokens_are_limited_as_requests_are() -> None:
    ledger = ledger_of(max_tpm=60_000, estimated_tokens_per_request=500)
    assert times(ledger, [ledger.ask(0.0) for _ in range(5)]) == pytest.approx([0.0, 0.0, 0.5, 1.0, 1.5])


def test_the_tighter_of_two_rates_decides() -> None:
    ledger = ledger_of(max_rpm=60, max_tpm=6_000, estimated_tokens_per_request=1)
    tickets = [ledger.ask(0.0, tokens=tokens) for tokens in (1, 1, 300, 1)]
    assert times(ledger, tickets) == pytest.approx([0.0, 1.0, 3.02, 3.03], abs=1.0)
    assert tickets[2].granted_at - tickets[1].granted_at >= 1.9


def test_what_is_saved_up_while_nobody_asks_is_one_burst() -> None:
    ledger = ledger_of(max_rpm=120)
    for _ in range(10):
        ledger.ask(3600.0)
    assert len(granted(ledger, 3600.0)) == 2


def test_a_ledger_that_takes_over_waits_for_holders_and_has_nothing_saved_up() -> None:
    ledger = ledger_of(takes_over=True, max_rpm=120)
    assert times(ledger, [ledger.ask(0.0) for _ in range(3)]) == pytest.approx(
        [TAKE_OVER_S + 0.5, TAKE_OVER_S + 1.0, TAKE_OVER_S + 1.5]
    )


def test_a_request_larger_than_the_burst_waits_for_its_size_and_is_not_overtaken() -> None:
    ledger = ledger_of(max_tpm=6_000, estimated_tokens_per_request=1)
    small, large, *later = [ledger.ask(0.0, tokens=tokens) for tokens in (100, 900, 1, 1)]
    assert times(ledger, [small, large, *later]) == pytest.approx([0.0, 9.0, 9.01, 9.02])


def test_what_is_saved_up_for_a_large_request_is_one_burst_too() -> None:
    ledger = ledger_of(max_tpm=6_000, estimated_tokens_per_request=1)
    ledger.ask(3600.0, tokens=900)
    assert ledger.due() == pytest.approx(3608.0)


def test_a_stream_of_small_requests_does_not_starve_a_large_one() -> None:
    ledger = ledger_of(max_tpm=6_000, estimated_tokens_per_request=1)
    now, small = 0.0, deque(ledger.ask(0.0, tokens=10) for _ in range(20))
    large = ledger.ask(0.0, tokens=1000)
    while not large.held:
        small.append(ledger.ask(now, tokens=10))
        now = max(now, ledger.due() or now)
        granted(ledger, now)
    assert large.granted_at == pytest.approx((20 * 10 - 100 + 1000) / 100)


# -- concurrency -----------------------------------------------------------------------------------------------------


def test_no_more_than_the_limit_are_held() -> None:
    ledger = ledger_of(max_concurrent=2)
    first, second, third = (ledger.ask(0.0) for _ in range(3))
    assert granted(ledger, 0.0) == [first, second]
    assert ledger.due() is None
    ledger.leave(first, 1.0)
    assert granted(ledger, 1.0) == [third]


@pytest.mark.parametrize("rate", [{"max_rpm": 60}, {"max_tpm": 6_000, "estimated_tokens_per_request": 100}])
def test_what_is_earned_while_all_places_are_taken_is_one_burst(rate: dict[str, Any]) -> None:
    ledger = ledger_of(max_concurrent=1, **rate)
    tickets = [ledger.ask(0.0) for _ in range(4)]
    granted(ledger, 0.0)
    ledger.leave(tickets[0], 100.0)
    assert granted(ledger, 100.0) == [tickets[1]]
    ledger.leave(tickets[1], 100.0)
    assert granted(ledger, 100.0) == []
    assert ledger.due() == pytest.approx(101.0)


def test_what_another_ledger_let_through_takes_a_place_until_it_is_given_back() -> None:
    ledger = ledger_of(max_concurrent=1)
    adopted, waiting = ledger.adopt(), ledger.ask(0.0)
    assert granted(ledger, 0.0) == []
    ledger.leave(adopted, 0.0)
    assert granted(ledger, 0.0) == [waiting]


def test_giving_back_twice_gives_back_once() -> None:
    ledger = ledger_of(max_concurrent=1)
    first, second, third = (ledger.ask(0.0) for _ in range(3))
    granted(ledger, 0.0)
    ledger.leave(first, 0.0)
    ledger.leave(first, 0.0)
    assert granted(ledger, 0.0) == [second]
    assert not third.held


# -- leaving and settling --------------------------------------------------------------------------------------------


def test_one_that_leaves_the_line_costs_nothing() -> None:
    ledger = ledger_of(max_tpm=6_000, estimated_tokens_per_request=1)
    ledger.ask(0.0, tokens=100)
    granted(ledger, 0.0)
    huge, small = ledger.ask(0.0, tokens=10_000), ledger.ask(0.0, tokens=100)
    ledger.leave(huge, 0.5)
    assert times(ledger, [small]) == pytest.approx([1.0])


def test_one_that_was_let_through_stays_booked_when_it_is_given_back() -> None:
    ledger = ledger_of(max_rpm=60)
    first, second = ledger.ask(0.0), ledger.ask(0.0)
    granted(ledger, 0.0)
    ledger.leave(first, 0.0)
    assert ledger.due() == pytest.approx(1.0)
    assert not second.held


@pytest.mark.parametrize(("used", "next_at"), [(10, 0.1), (100, 1.0), (550, 5.5)])
def test_what_a_response_counted_takes_the_place_of_what_was_booked(used: int, next_at: float) -> None:
    ledger = ledger_of(max_tpm=6_000, estimated_tokens_per_request=100)
    first, second = ledger.ask(0.0), ledger.ask(0.0)
    granted(ledger, 0.0)
    ledger.settle(first, used)
    assert times(ledger, [second]) == pytest.approx([next_at])


def test_settling_twice_counts_the_last() -> None:
    ledger = ledger_of(max_tpm=6_000, estimated_tokens_per_request=100)
    first, second = ledger.ask(0.0), ledger.ask(0.0)
    granted(ledger, 0.0)
    ledger.settle(first, 5000)
    ledger.settle(first, 200)
    assert times(ledger, [second]) == pytest.approx([2.0])


# -- 429 -------------------------------------------------------------------------------------------------------------


def test_a_429_halts_everyone_and_then_they_go_more_slowly_without_a_burst() -> None:
    ledger = ledger_of(max_rpm=600)
    first = ledger.ask(0.0)
    granted(ledger, 0.0)
    assert ledger.throttle(first, 0.0, retry_after_s=20.0) == 20.0
    tickets = [ledger.ask(0.0) for _ in range(1000)]
    went = times(ledger, tickets)
    assert went[0] == pytest.approx(20.0 + 0.1 / SLOW_DOWN, abs=0.01)
    assert went[1] - went[0] == pytest.approx(0.1 / SLOW_DOWN, abs=0.01)
    assert went[-1] - went[-2] == pytest.approx(0.1)


def test_many_429s_of_one_moment_slow_down_once_and_the_longest_halt_holds() -> None:
    ledger = ledger_of(max_rpm=600)
    tickets = [ledger.ask(0.0) for _ in range(10)]
    granted(ledger, 0.0)
    for number, ticket in enumerate(tickets):
        ledger.throttle(ticket, 1.0, retry_after_s=10.0 - number)
    assert ledger.share_at(1.0) == SLOW_DOWN
    ledger.ask(1.0)
    due = ledger.due()
    assert due is not None
    assert due >= 11.0


def test_a_429_at_the_slower_pace_slows_down_further() -> None:
    ledger = ledger_of(max_rpm=600)
    first, second = ledger.ask(0.0), ledger.ask(0.0)
    granted(ledger, 0.0)
    ledger.throttle(first, 1.0, 0.0)
    third = ledger.ask(2.0)
    granted(ledger, 3.0)
    ledger.throttle(second, 3.0, 0.0)  # of before the slow-down
    assert ledger.share_at(3.0) > SLOW_DOWN
    ledger.throttle(third, 3.0, 0.0)
    assert ledger.share_at(3.0) == pytest.approx(SLOW_DOWN * (SLOW_DOWN + 0.02))


def test_a_429_that_says_nothing_halts_for_a_moment_and_an_absurd_one_not_for_ever() -> None:
    ledger = ledger_of()
    ticket = ledger.ask(0.0)
    granted(ledger, 0.0)
    assert ledger.throttle(ticket, 0.0, None) == pytest.approx(UNSTATED_HALT_S / SLOW_DOWN)
    assert ledger.throttle(ticket, 0.0, 1e18) == LONGEST_HALT_S


def test_where_only_concurrency_is_limited_a_429_takes_places_away_for_a_while() -> None:
    ledger = ledger_of(max_concurrent=10)
    tickets = [ledger.ask(0.0) for _ in range(30)]
    granted(ledger, 0.0)
    ledger.throttle(tickets[0], 0.0, 0.0)
    for ticket in tickets[:10]:
        ledger.leave(ticket, 0.0)
    assert len(granted(ledger, 0.0)) == 7
    assert len(granted(ledger, 15.0)) == 1
    assert ledger.due() == pytest.approx(20.0)


# -- cost ------------------------------------------------------------------------------------------------------------


def lines_run(work: Any) -> int:
    """How many lines of the ledger `work` runs."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename != ledger_module.__file__:
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def cost_per_request(waiting: int) -> tuple[float, float, float]:
    """Lines per request of asking, of leaving from the middle of the line, and of being let through."""
    ledger = ledger_of(max_rpm=600, max_tpm=10**6, max_concurrent=5)
    tickets: list[Ticket] = []
    asking = lines_run(lambda: tickets.extend(ledger.ask(0.0) for _ in range(waiting)))
    quitters = tickets[1::2]
    leaving = lines_run(lambda: deque(map(ledger.leave, quitters, [0.0] * len(quitters))))
    serving = lines_run(lambda: times(ledger, tickets[::2]))
    return asking / waiting, leaving / len(quitters), serving / (waiting - len(quitters))


def test_ten_thousand_that_wait_cost_as_much_each_as_a_hundred() -> None:
    few, many = cost_per_request(100), cost_per_request(10_000)
    assert many == pytest.approx(few, rel=0.1)
    assert sum(many) < 200


# -- any sequence of events ------------------------------------------------------------------------------------------

RPM, TPM, PLACES, ESTIMATE = 90, 4_000, 4, 50
BURSTS = {"requests": max(1.0, RPM / 60), "tokens": max(ESTIMATE, TPM / 60)}


class AnySequence(RuleBasedStateMachine):
    """Asks, leaves, settlements, 429s and time in any order; the limits are checked against a list of all that went."""

    @initialize(takes_over=st.booleans())
    def begin(self, takes_over: bool) -> None:
        limits = RateLimitConfig(max_rpm=RPM, max_tpm=TPM, max_concurrent=PLACES, estimated_tokens_per_request=ESTIMATE)
        self.ledger = Ledger(limits, 0.0, takes_over=takes_over)
        self.now = 0.0
        self.line: list[Ticket] = []
        self.held: list[Ticket] = []
        self.went: list[tuple[float, int]] = []
        self.corrected = 0.0
        self.halted_until = 0.0

    def serve(self) -> None:
        while ticket := self.ledger.grant(self.now):
            assert ticket is self.line.pop(0), "overtaken"
            assert self.now >= self.halted_until
            self.held.append(ticket)
            self.went.append((self.now, int(ticket.tokens)))

    @rule(tokens=st.one_of(st.none(), st.integers(0, 500)))
    def ask(self, tokens: int | None) -> None:
        self.line.append(self.ledger.ask(self.now, tokens))
        self.serve()

    @precondition(lambda self: self.line)
    @rule(data=st.data())
    def leave_the_line(self, data: st.DataObject) -> None:
        ticket = self.line.pop(data.draw(st.integers(0, len(self.line) - 1)))
        self.ledger.leave(ticket, self.now)
        self.serve()

    @precondition(lambda self: self.held)
    @rule(data=st.data(), used=st.one_of(st.none(), st.integers(0, 200)))
    def end(self, data: st.DataObject, used: int | None) -> None:
        ticket = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        if used is not None:
            self.corrected += max(0.0, ticket.tokens - used)
            self.ledger.settle(ticket, used)
        self.ledger.leave(ticket, self.now)
        self.serve()

    @precondition(lambda self: self.held)
    @rule(after=st.one_of(st.none(), st.floats(0, 30)))
    def throttle(self, after: float | None) -> None:
        self.halted_until = max(self.halted_until, self.ledger.throttle(self.held[0], self.now, after))

    @rule(seconds=st.floats(0, 20))
    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.ledger.due()) is not None and due <= end:
            self.now = max(self.now, due)
            self.serve()
        self.now = end

    @invariant()
    def no_window_holds_more_than_the_limits(self) -> None:
        for first, (began, size) in enumerate(self.went):
            requests, tokens = 0, 0
            for at, amount in self.went[first:]:
                requests, tokens = requests + 1, tokens + amount
                assert requests <= BURSTS["requests"] + RPM / 60 * (at - began) + 1e-6
                allowed = max(BURSTS["tokens"], size) + TPM / 60 * (at - began) + self.corrected
                assert tokens <= allowed + 1e-6

    @invariant()
    def nobody_is_lost(self) -> None:
        assert self.ledger.waiting == len(self.line)
        assert self.ledger.held == len(self.held) <= PLACES

    @invariant()
    def the_first_in_line_has_its_turn(self) -> None:
        due = self.ledger.due()
        if self.line and not self.held:
            assert due is not None
            assert math.isfinite(due)

    def teardown(self) -> None:
        if not hasattr(self, "ledger"):
            return
        for ticket in self.held:
            self.ledger.leave(ticket, self.now)
        self.held.clear()
        waiting = list(self.line)
        while self.line:
            self.wait(60.0)
            for ticket in self.held:
                self.ledger.leave(ticket, self.now)
            self.held.clear()
        assert all(ticket.granted_at > -math.inf for ticket in waiting)


TestAnySequence = AnySequence.TestCase
TestAnySequence.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

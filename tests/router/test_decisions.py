"""The small decisions of the router, each without a clock and without I/O."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import RouterError
from reward_loop.router.affinity import key_by
from reward_loop.router.attempt import may_be_resent, outcome_of, retry_after_s
from reward_loop.router.budget import RESERVE, RetryBudget
from reward_loop.router.hedging import ENOUGH, Hedging
from reward_loop.router.memo import Memo, head_of
from reward_loop.router.model_name import model_named
from reward_loop.router.settings import RouterSettings
from reward_loop.router.waiting import WaitingLines
from reward_loop.router.wire import first, without


def test_settings_travel_as_one_line() -> None:
    settings = RouterSettings(policy="round_robin", token="a\nb", hedge_quantile=0.9)
    line = settings.to_json()
    assert "\n" not in line
    assert RouterSettings.from_json(line) == settings


@pytest.mark.parametrize("text", ["", "[]", "{", '{"polcy": "x"}', "null"])
def test_settings_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(RouterError, match="the router's settings"):
        RouterSettings.from_json(text)


@given(st.binary(max_size=3000), st.lists(st.integers(0, 3000), max_size=5), st.sampled_from(["body", "prefix", "session"]))
def test_equal_bodies_have_equal_keys_however_they_are_cut(body: bytes, cuts: list[int], affinity: str) -> None:
    key = key_by(RouterSettings(affinity=affinity, affinity_bytes=100))  # type: ignore[arg-type]
    edges = [0, *sorted(cuts), len(body)]
    pieces = [body[start:end] for start, end in pairwise(edges)]
    assert key([piece for piece in pieces if piece], b"") == key([body] if body else [], b"")


def test_what_a_key_looks_at() -> None:
    same, other = b"x" * 100 + b"1", b"x" * 100 + b"2"
    prefix = key_by(RouterSettings(affinity="prefix", affinity_bytes=100))
    assert prefix([same], b"") == prefix([other], b"") != prefix([b"y" + same], b"")
    body = key_by(RouterSettings(affinity="body"))
    assert body([same], b"s") == body([same], b"t") != body([other], b"s")
    session = key_by(RouterSettings(affinity="session"))
    assert session([same], b"s") == session([other], b"s") != session([same], b"t")
    assert session([same], b"") != session([other], b"")


@pytest.mark.parametrize(
    ("method", "target", "may"),
    [
        (b"GET", b"/sleep", True),
        (b"HEAD", b"/", True),
        (b"POST", b"/score", True),
        (b"POST", b"/v1/chat/completions", True),
        (b"POST", b"/classify?x=/sleep", True),
        (b"POST", b"/pooling", True),
        (b"POST", b"/tokenize", True),
        (b"POST", b"/sleep?level=2", False),
        (b"POST", b"/wake_up", False),
        (b"POST", b"/pause", False),
        (b"POST", b"/resume", False),
        (b"POST", b"/update_weights", False),
        (b"POST", b"/collective_rpc", False),
        (b"POST", b"/v1/load_lora_adapter", False),
        (b"POST", b"/v1/unload_lora_adapter", False),
        (b"POST", b"/reset_prefix_cache", False),
        (b"POST", b"/init_weight_transfer_engine", False),
        (b"DELETE", b"/score", False),
        (b"PUT", b"/score", False),
    ],
)
def test_questions_may_be_asked_twice_and_orders_may_not(method: bytes, target: bytes, may: bool) -> None:
    assert may_be_resent(method, target) is may


def test_what_a_status_means() -> None:
    assert [outcome_of(status) for status in (200, 204, 302, 400, 404, 429, 503, 500, 502, 504)] == [
        *["ok"] * 3,
        *["rejected"] * 2,
        *["busy"] * 2,
        *["failed"] * 3,
    ]


def test_how_long_to_wait_is_a_number_or_unknown() -> None:
    said = [b"7", b"0", b"Wed, 21 Oct 2026 07:28:00 GMT", b"-1", b"", None]
    assert [retry_after_s(value) for value in said] == [7.0, 0.0, None, None, None, None]


@given(st.floats(0.0, 1.0), st.lists(st.integers(0, 50), max_size=200))
def test_resends_never_exceed_the_reserve_and_the_share_of_all_requests(share: float, arrivals: list[int]) -> None:
    budget, requests, spent = RetryBudget(share), 0, 0
    for count in arrivals:
        requests += count
        while budget.spend(requests):
            spent += 1
        assert spent <= RESERVE + share * requests + 1e-6


def test_a_purse_that_is_full_holds_no_more() -> None:
    budget = RetryBudget(1.0)
    assert sum(budget.spend(1_000_000) for _ in range(1_000)) == RESERVE


def test_nobody_knows_what_is_slow_until_enough_has_been_seen() -> None:
    hedging = Hedging(0.9)
    for number in range(ENOUGH - 1):
        hedging.note(number / 100)
    hedging.tick()
    known = [hedging.after_s]
    hedging.note(1.0)
    hedging.tick()
    assert [*known, hedging.after_s] == [None, 0.28]
    never = Hedging(None)
    for _ in range(100):
        never.note(1.0)
    never.tick()
    assert never.after_s is None


@pytest.mark.parametrize(
    ("body", "model"),
    [
        ('{"model": "a", "input": "x"}', "a"),
        ('\n {"model":"a"}', "a"),
        ('{"input": "x", "model": "a"}\n', "a"),
        ('{"input": ["x"], "model": "a", "n": 1}', "a"),
        ('{"input": "\\"model\\": \\"b\\"", "model": "a", "n": 1}', "a"),
        ('{"input": {"model": "b"}, "model": "a", "n": 1}', "a"),
        ('{"input": {"model": "b"}}', None),
        ('{"input": [{"model": "b"}]}', None),
        ('{"model": "\\u0061"}', "a"),
        ('{"model": "ä"}', "ä"),
        ('{"model": 7}', None),
        ('{"model": null}', None),
        ('[{"model": "a"}]', None),
        ('"model"', None),
        ('{"input": "x", "model": "a", ', None),
        ("", None),
        ("model: a", None),
    ],
)
def test_the_model_is_what_the_outermost_object_says(body: str, model: str | None) -> None:
    raw = body.encode()
    assert model_named([raw]) == model
    assert model_named([raw[:5], raw[5:]]) == model


def test_a_head_is_remembered_only_with_all_of_its_message() -> None:
    assert head_of(b"GET / HTTP/1.1\r\n\r\n", 0) == b"GET / HTTP/1.1\r\n\r\n"
    assert head_of(b"POST / HTTP/1.1\r\n\r\nbody", 4) == b"POST / HTTP/1.1\r\n\r\n"
    assert head_of(b"POST / HTTP/1.1\r\n\r\nbody!", 4) is None
    assert head_of(b"POST / HTTP/1.1\r\n\r\nbod", 4) is None
    assert head_of(b"\r\n\r\nGET / HTTP/1.1\r\n\r\n", 0) is None
    assert head_of(b"GET / HTTP/1.1\r\nX: " + b"x" * 3000 + b"\r\n\r\n", 0) is None


def test_a_memo_never_grows_beyond_a_bound() -> None:
    memo: Memo[int, int] = Memo()
    for number in range(10_000):
        assert memo.keep(number, number) == number
        assert len(memo) <= 1024


def test_lines_are_first_in_first_out_and_bounded() -> None:
    lines: WaitingLines[str, str] = WaitingLines(3)
    assert [lines.join("one", "a"), lines.join("one", "b"), lines.join("two", "c"), lines.join("two", "d")] == [True] * 3 + [
        False
    ]
    assert (lines.first("one"), lines.first("two"), lines.first("three"), len(lines)) == ("a", "c", None, 3)
    assert (lines.leave("a"), lines.leave("a"), lines.first("one"), lines.length("one")) == (True, False, "b", 1)
    assert lines.leave("b")
    assert list(lines) == ["two"]


def test_headers_that_a_connection_header_names_end_here() -> None:
    headers = [b"A", b": ", b"1", b"\r\n", b"B", b": ", b"2", b"\r\n"]
    assert without(headers, b"close, b") == headers[:4]
    assert without(headers, b"keep-alive") == headers
    assert (first(headers, b"b"), first(headers, b"c")) == (b"2", None)

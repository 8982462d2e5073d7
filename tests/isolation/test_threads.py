"""Threads for synchronous functions: never used up by those that hang."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.errors import RewardFunctionError
from reward_loop.isolation.threads import ThreadCrew, cpu_seconds, threads_wanted
from reward_loop.outcome import describe

PATIENCE_S = 10.0


@pytest.fixture
def release() -> Iterator[threading.Event]:
    """What hanging functions wait for; set at the end, so that their threads end too."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def crew() -> Iterator[ThreadCrew]:
    crew = ThreadCrew(max_threads=2)
    yield crew
    crew.close()


async def hanging(crew: ThreadCrew, release: threading.Event) -> tuple[asyncio.Task[None], threading.Thread]:
    """A call that has begun and ends when it is released, and the thread that it keeps."""
    begun: asyncio.Future[threading.Thread] = asyncio.get_running_loop().create_future()

    def hang() -> None:
        begun.get_loop().call_soon_threadsafe(begun.set_result, threading.current_thread())
        release.wait()

    return asyncio.create_task(crew.call(hang)), await begun


# -- calls -------------------------------------------------------------------------------------------------------------


async def test_a_call_returns_what_the_function_returns(crew: ThreadCrew) -> None:
    def add(a: int, /, *, function: int) -> tuple[int, bool]:
        return a + function, threading.current_thread() is threading.main_thread()

    assert await crew.call(add, 1, function=2) == (3, False)


async def test_a_call_raises_what_the_function_raises(crew: ThreadCrew) -> None:
    with pytest.raises(ZeroDivisionError):
        await crew.call(lambda: 1 / 0)


class Exotic(BaseException):
    pass


@pytest.mark.parametrize(
    "error", [StopIteration(1), SystemExit(3), asyncio.CancelledError("theirs"), Exotic("!"), KeyboardInterrupt()]
)
async def test_what_would_end_the_event_loop_comes_as_an_error_of_ours(crew: ThreadCrew, error: BaseException) -> None:
    def compute_score() -> None:
        raise error

    with pytest.raises(RewardFunctionError, match=type(error).__name__) as caught:
        await crew.call(compute_score)
    assert "in compute_score)" in describe(caught.value)
    assert await crew.call(lambda: "still there") == "still there"


async def test_a_function_may_return_none(crew: ThreadCrew) -> None:
    nothing: Callable[[], object] = lambda: None  # noqa: E731
    assert await crew.call(nothing) is None


# -- how many threads --------------------------------------------------------------------------------------------------


async def test_an_idle_thread_is_used_again() -> None:
    crew = ThreadCrew(max_threads=50)
    threads = {await crew.call(threading.current_thread) for _ in range(50)}
    crew.close()
    assert len(threads) < 10  # not 1: the next call may come before the thread of the last one is idle


async def test_functions_run_side_by_side_up_to_the_limit() -> None:
    crew = ThreadCrew(max_threads=3)
    meeting = threading.Barrier(3, timeout=PATIENCE_S)
    await asyncio.gather(*(crew.call(meeting.wait) for _ in range(3)))  # each waits for the other two
    running = 0
    most = 0
    lock = threading.Lock()

    def count() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.001)  # lets the others in, if there were any
        with lock:
            running -= 1

    await asyncio.gather(*(crew.call(count) for _ in range(20)))
    crew.close()
    assert 1 <= most <= 3


async def test_every_job_of_a_burst_gets_a_thread_of_its_own() -> None:
    crew = ThreadCrew(max_threads=64)
    for jobs in (1, 2, 4, 8, 16):  # each burst finds the threads of the last one idle, and needs as many more
        meeting = threading.Barrier(jobs, timeout=PATIENCE_S)
        await asyncio.gather(*(crew.call(meeting.wait) for _ in range(jobs)))
    crew.close()


async def test_a_hanging_function_costs_its_caller_and_no_other(crew: ThreadCrew, release: threading.Event) -> None:
    for _ in range(5):  # more than there are threads
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await crew.call(release.wait)
    async with asyncio.timeout(PATIENCE_S):
        assert await crew.call(lambda: "served") == "served"


async def test_those_who_wait_for_a_hanging_thread_get_another(release: threading.Event) -> None:
    crew = ThreadCrew(max_threads=1)
    hanging = asyncio.create_task(crew.call(release.wait))
    await asyncio.sleep(0)
    waiting = asyncio.create_task(crew.call(lambda: "served"))
    await asyncio.sleep(0)
    hanging.cancel()
    async with asyncio.timeout(PATIENCE_S):
        assert await waiting == "served"
    crew.close()


async def test_a_call_that_was_cancelled_before_its_turn_never_runs(release: threading.Event) -> None:
    crew = ThreadCrew(max_threads=1)
    ran: list[str] = []
    busy = asyncio.create_task(crew.call(release.wait))
    await asyncio.sleep(0)
    late = asyncio.create_task(crew.call(lambda: ran.append("late")))
    await asyncio.sleep(0)
    late.cancel()
    await asyncio.wait([late])
    release.set()
    await busy
    await crew.call(lambda: ran.append("next"))
    crew.close()
    assert ran == ["next"]


async def test_an_abandoned_thread_ends_after_its_function(crew: ThreadCrew, release: threading.Event) -> None:
    call, thread = await hanging(crew, release)
    call.cancel()
    await asyncio.wait([call])
    release.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


async def test_closing_ends_idle_threads() -> None:
    crew = ThreadCrew(max_threads=4)
    meeting = threading.Barrier(4, timeout=PATIENCE_S)

    def meet() -> threading.Thread:
        meeting.wait()
        return threading.current_thread()

    threads = await asyncio.gather(*(crew.call(meet) for _ in range(4)))
    crew.close()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)
    assert all(thread.daemon for thread in threads)


def test_a_result_that_nobody_waits_for_any_more_is_dropped(crew: ThreadCrew, release: threading.Event) -> None:
    async def leave() -> threading.Thread:
        call, thread = await hanging(crew, release)
        call.cancel()
        return thread

    thread = asyncio.run(leave())  # and closes its loop, which the function's end then finds closed
    release.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


# -- the rule ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threads", "cpu", "inside", "wanted"),
    [
        (1, 1.0, 1.0, 1),  # computes: the lock is taken, another thread gains nothing
        (1, 0.5, 1.0, 1),
        (1, 0.49, 1.0, 2),  # waits inside the function: there is room
        (1, 0.0, 0.5, 1),  # waits outside of it, for samples: another thread would too
        (4, 0.0, 2.0, 4),
        (4, 0.0, 4.0, 8),
        (6, 0.0, 6.0, 10),  # up to the limit
        (10, 0.0, 10.0, 10),
    ],
)
def test_threads_that_wait_double_and_others_do_not(threads: int, cpu: float, inside: float, wanted: int) -> None:
    assert threads_wanted(threads, cpu, inside, 1.0, 10) == wanted


seconds = st.floats(0, 10)


@given(st.integers(1, 64), seconds, seconds, seconds, st.integers(1, 64))
def test_growth_stays_within_the_limit(threads: int, cpu: float, inside: float, wall: float, limit: int) -> None:
    wanted = threads_wanted(threads, cpu, inside, wall, limit)
    assert wanted in (threads, 2 * threads, limit)
    assert wanted <= max(threads, limit)


async def test_the_processor_time_of_a_thread_is_its_own(crew: ThreadCrew, release: threading.Event) -> None:
    call, waiting = await hanging(crew, release)
    before = cpu_seconds(waiting)
    await crew.call(lambda: sum(range(1_000_000)))
    assert cpu_seconds(waiting) - before < 0.005
    release.set()
    await call

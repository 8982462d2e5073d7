"""Running all rubrics that are due at the same time, to the end of all or to the first failure."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Sequence
from functools import partial
from typing import Any

from reward_loop.isolation.threads import ThreadCrew
from reward_loop.rubrics.evaluation import discard, must_await
from reward_loop.rubrics.run import Run
from reward_loop.rubrics.thread_hop import Pending, ThreadHop
from reward_loop.scoring.side_by_side import side_by_side


def start_here(runs: Iterable[Run], pending: list[Pending]) -> None:
    """Settle runs in this thread; what must be awaited goes into `pending`. Raises the first fatal error."""
    copies: tuple[Any, Any] | None = None
    for run in runs:
        outcome = run.attempt(copies)
        if must_await(outcome):
            pending.append((run, outcome))
            copies = None
        else:
            _settle(run, outcome)
            copies = run.left(copies)


async def run_all(runs: Sequence[Run], crew: ThreadCrew, limit: int | None) -> None:
    """Settle all runs, at most `limit` at a time; the first fatal error is raised when all others have ended.

    Those that belong in a thread share one, one after the other, and count as one.
    """
    pending: list[Pending] = []
    try:
        start_here((run for run in runs if run.entry.place == "inline"), pending)
        calls = [partial(finish, *held) for held in pending]
        calls += [partial(_call_and_finish, run) for run in runs if run.entry.place == "task"]
        if in_thread := [run for run in runs if run.entry.place == "thread"]:
            calls.append(partial(_in_thread, in_thread, crew, limit))
        if len(calls) == 1:
            await calls[0]()
        elif calls:
            await side_by_side(calls, limit)
    finally:
        discard(awaitable for _, awaitable in pending)


async def finish_all(pending: Sequence[Pending], limit: int | None) -> None:
    """Await what has been started, and settle it."""
    await side_by_side([partial(finish, *held) for held in pending], limit)


async def finish(run: Run, pending: Awaitable[Any]) -> None:
    """Await what a run's rubric returned, and settle it; raise its error if it is fatal."""
    _settle(run, await run.awaited(pending))


async def _call_and_finish(run: Run) -> None:
    outcome = run.attempt()
    _settle(run, await run.awaited(outcome) if must_await(outcome) else outcome)


async def _in_thread(runs: Sequence[Run], crew: ThreadCrew, limit: int | None) -> None:
    hop = ThreadHop(runs)
    try:
        await hop.go(crew)
        if hop.pending:
            await finish_all(hop.pending, limit)
    finally:
        discard(awaitable for _, awaitable in hop.pending)


def _settle(run: Run, outcome: object) -> None:
    run.settle(outcome)
    if run.error is not None and (fatal := run.fatal) is not None:
        raise fatal

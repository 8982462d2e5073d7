"""Evaluating rubrics, whether or not what they are made of must be awaited, and remembering what each of them gave.

A rubric's evaluation is a generator: it yields what must be awaited, and gets back what came of it. Invariants: an evaluation
that awaits nothing returns a number at once, also where a loop runs; nothing is begun in one task and ended in another; what a
rubric gave is remembered per call, so that concurrent calls of one rubric don't see each other's scores; where an evaluation
ends early, the coroutines that it holds are closed.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeAlias, TypeVar

from reward_loop.rubrics.score import Score
from reward_loop.scoring.side_by_side import side_by_side

T = TypeVar("T")
Steps: TypeAlias = Generator[Awaitable[Any], Any, T]

Given: TypeAlias = dict[int, tuple[object, Score]]
"""The scores of one call by the identity of the rubric, with the rubric, which keeps the identity its own."""

_call: ContextVar[Given | None] = ContextVar("call", default=None)
_last: ContextVar[Mapping[int, tuple[object, Score]]] = ContextVar("last")


_PLAIN = frozenset({Score, float, bool, int, dict, type(None)})  # most results, for which asking `inspect` takes far longer


def must_await(value: object) -> bool:
    """Say whether a value is to be awaited; a `Score` may be, but need not."""
    return type(value) not in _PLAIN and not isinstance(value, float) and inspect.isawaitable(value)


def settled(value: Any) -> Steps[Any]:
    """Return (by `yield from`) the value, or what comes of it."""
    if not must_await(value):
        return value
    try:
        return (yield value)
    finally:
        discard([value])


def all_settled(values: Sequence[Any]) -> Steps[list[Any]]:
    """Return (by `yield from`) all values; those to be awaited are so at the same time, and the first failure ends the others."""
    pending = [number for number, value in enumerate(values) if must_await(value)]
    results = list(values)
    if pending:
        try:
            ended = yield from settled(side_by_side([partial(_itself, values[number]) for number in pending]))
        finally:
            discard(values)
        for number, result in zip(pending, ended, strict=True):
            results[number] = result
    return results


def discard(values: Iterable[object]) -> None:
    """Close the coroutines among these values: what has not been awaited yet never will be."""
    for value in values:
        if inspect.iscoroutine(value):
            value.close()


def evaluated(steps: Steps[T], given: Given | None = None) -> T | Coroutine[Any, Any, T]:
    """Return what the steps come to; a coroutine of it where one of them must be awaited, within the record `given`."""
    try:
        pending = next(steps)
    except StopIteration as ended:
        result: T = ended.value
        return result
    return _awaited(steps, pending, given)


class recorded:  # noqa: N801 - a block, as those of contextlib, which take several times as long
    """Remember in one record what all rubrics give that are called in the block, in tasks and threads of its context too."""

    __slots__ = ("_given", "_opened")

    def __enter__(self) -> Given:
        self._given: Given = {}
        self._opened = _call.set(self._given)
        return self._given

    def __exit__(self, *_: object) -> None:
        _call.reset(self._opened)
        _last.set(self._given)


def called(steps: Steps[Score]) -> Score | Coroutine[Any, Any, Score]:
    """`evaluated` for one call of a rubric: the outermost one opens the record in which all within it are remembered."""
    if _call.get() is not None:
        return evaluated(steps)
    given: Given = {}
    opened = _call.set(given)
    try:
        pending = next(steps)
    except StopIteration as ended:
        score: Score = ended.value
        return score
    finally:
        _call.reset(opened)
        _last.set(given)
    # One coroutine, not two in each other: closing one that has not begun closes nothing that is passed to it.
    return _awaited(steps, pending, given)


def call_under_way() -> Given | None:
    """Return the record of the call that is under way here, in which rubrics note what they gave; None if none is."""
    return _call.get()


def remembered(rubric: object) -> Score | None:
    """Return what a rubric gave in the call that is under way here, or in the last one that ended here."""
    given = _call.get() or _last.get({})
    return given[id(rubric)][1] if id(rubric) in given else None


async def _itself(value: Awaitable[T]) -> T:
    return await value


async def _awaited(steps: Steps[T], pending: Awaitable[Any], given: Given | None = None) -> T:
    """Take the steps to their end, within the record `given` if there is one."""
    opened = None if given is None else _call.set(given)
    try:
        while True:
            try:
                result = await pending
            except BaseException as error:  # noqa: BLE001 - goes on to the steps, which clean up and raise it again
                pending = steps.throw(error)
            else:
                pending = steps.send(result)
    except StopIteration as ended:
        value: T = ended.value
        return value
    finally:
        if opened is not None and given is not None:
            _call.reset(opened)
            _last.set(given)

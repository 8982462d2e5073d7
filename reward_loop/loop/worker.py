"""A reward loop worker: scores batches, every sample on its own, on one event loop.

Invariants: each row of a batch is emitted exactly once; a failing sample never touches another; at most
`reward_model.max_concurrency` units are being awaited at a time.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

from reward_loop.config import RewardLoopConfig
from reward_loop.config_loading import load_config
from reward_loop.data import DataProto, as_data_proto
from reward_loop.data.sample import Sample, SampleReader
from reward_loop.deadline import within
from reward_loop.errors import DataError, Unscorable
from reward_loop.loop.bulk import BulkScoring, score_now
from reward_loop.loop.judge import build_manager, build_scorer
from reward_loop.loop.sample_tasks import EmitRow, SampleTasks
from reward_loop.loop.units import Rows, units_of
from reward_loop.managers.base import RewardManagerBase
from reward_loop.managers.job import Job
from reward_loop.managers.scorer import Scorer, Unit, unit_of
from reward_loop.outcome import ErrorPolicy, Outcome, Reward

_INLINE_S = 0.005


class RewardLoopWorker:
    """Scores samples with the manager that the configuration names. A plain object here, an actor under Ray.

    Everything is built at the first use, so that a configuration error reaches the caller as itself, also from an actor.
    """

    def __init__(
        self,
        config: RewardLoopConfig | Any,
        reward_router_address: str | None = None,
        *,
        compute_score: Callable[..., Any] | None = None,
        manager_class: type | None = None,
        job: Job | None = None,
    ) -> None:
        self._config = config
        self._address = reward_router_address
        self._compute_score = compute_score
        self._manager_class = manager_class
        self._job = job or Job()

    @functools.cached_property
    def config(self) -> RewardLoopConfig:
        """The validated configuration."""
        return self._config if isinstance(self._config, RewardLoopConfig) else load_config(self._config)

    @functools.cached_property
    def manager(self) -> RewardManagerBase:
        """The reward manager."""
        return build_manager(self.config, self._address, self._compute_score, self._manager_class, self._job)

    async def start(self) -> tuple[Unit, bool]:
        """Build everything, raising ConfigError; return what a unit is, and whether units wait side by side (no thread each)."""
        _ = self._scorer
        await self.manager.open()
        return unit_of(self.manager), not self._in_bulk

    async def compute_score(self, data: DataProto) -> dict[str, Any]:
        """Score one item: a sample, or all outputs of one trajectory, of which the last is scored.

        Returns `{"reward_score", "reward_extra_info"}`; raises BatchFailed if scoring failed and `on_error` is "raise".
        """
        data = as_data_proto(data)
        outcomes = await self._collect(data, one_unit(data))
        return self._results(outcomes[-1:])[0]

    async def compute_score_batch(self, data: DataProto) -> list[dict[str, Any]]:
        """Score every row of a batch; results in order. Raises BatchFailed after all have ended, if `on_error` is "raise"."""
        return self._results(await self.score_rows(data))

    async def score_rows(self, data: DataProto) -> list[Outcome]:
        """Return the outcome of every row, in order; raises DataError only for a batch that is malformed as a whole."""
        return await self._collect(as_data_proto(data), None)

    async def score(self, data: DataProto, emit: EmitRow, units: Sequence[Rows] | None = None, *, in_order: bool = False) -> None:
        """Emit the outcome of every row as soon as it is there; `in_order`: one unit after the other.

        Raises DataError, before any row is scored, for a batch that is malformed as a whole.
        """
        unit = unit_of(self.manager)
        reader = self.manager.reader(data)
        if self.manager.pipelined or self.manager.required:
            reader.check()
        full = _without_empty(units_of(data, unit) if units is None else units, unit, reader, emit)
        if unit == "single":
            emit = _for_whole_trajectory(full, reader, emit)
        if in_order:
            for rows in full:
                await self._score_side_by_side(data, [rows], unit, emit)
        elif self._in_bulk:
            await self._score_in_bulk(reader, [rows[-1] for rows in full], emit)
        else:
            await self._score_side_by_side(data, full, unit, emit)

    async def aclose(self) -> None:
        """Release everything, on the event loop that scored."""
        if "manager" in self.__dict__:
            await self.manager.aclose()

    def close(self) -> None:
        """Release threads and grader processes."""
        if "manager" in self.__dict__:
            self.manager.close()

    @functools.cached_property
    def _scorer(self) -> Scorer:
        return build_scorer(self.manager)

    @functools.cached_property
    def _slots(self) -> asyncio.Semaphore:
        return asyncio.Semaphore(self.config.reward_model.max_concurrency)

    @functools.cached_property
    def _in_bulk(self) -> bool:
        """Whether nothing stands between a sample and the function, so that many can be read at once."""
        settings = self.config.reward_model
        wrapped = settings.retry.attempts > 1 or settings.cache.enable or settings.rate_limit.limited
        return self.manager.pipelined and unit_of(self.manager) == "single" and not wrapped

    @property
    def rows_go_alone(self) -> bool:
        """Whether each row of a batch is scored by a task of its own, so that scored together none waits for another."""
        return self._in_bulk and self.manager.is_async

    @functools.cached_property
    def _timeout_s(self) -> float | None:
        """The deadline of a pipelined sample that is kept here; grader processes keep it themselves."""
        return None if self.manager.fixed_isolation == "process" else self.config.reward_model.timeout_s

    async def _collect(self, data: DataProto, units: Sequence[Rows] | None) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        await self.score(data, outcomes.__setitem__, units)
        return [outcomes[row] for row in range(len(data))]

    def _results(self, outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
        policy = error_policy(self.config)
        policy.check(outcomes, [str(row) for row in range(len(outcomes))])
        return [policy.result(outcome) for outcome in outcomes]

    async def _score_in_bulk(self, reader: SampleReader, rows: Sequence[int], emit: EmitRow) -> None:
        isolation = self.manager.fixed_isolation
        if isolation == "inline":
            await self._score_inline(reader, rows, emit)
        elif isolation == "process" or self.manager.is_async:
            await self._score_in_tasks(reader, rows, emit)
        else:
            await BulkScoring(self.manager, reader, rows, emit, self._finish_in_turn).run()

    async def _score_inline(self, reader: SampleReader, rows: Sequence[int], emit: EmitRow) -> None:
        """Score on this event loop, letting others have it every few milliseconds."""
        loop = asyncio.get_running_loop()
        pause = loop.time() + _INLINE_S
        async with SampleTasks(emit) as tasks:
            for row, sample in reader.read_all(rows):
                result = score_now(self.manager, sample)
                if isinstance(result, Outcome):
                    emit(row, result)
                else:
                    tasks.start([row], self._finish_in_turn(row, *result, emit))
                if loop.time() > pause:
                    await asyncio.sleep(0)
                    pause = loop.time() + _INLINE_S

    async def _score_in_tasks(self, reader: SampleReader, rows: Sequence[int], emit: EmitRow) -> None:
        async with SampleTasks(emit) as tasks:
            for row, sample in reader.read_all(rows):
                if isinstance(sample, Exception):
                    emit(row, Outcome.from_error(sample, 0.0))
                    continue
                await self._slots.acquire()
                task = tasks.start([row], self._score_sample(row, sample, emit))
                task.add_done_callback(self._release)

    async def _score_side_by_side(self, data: DataProto, units: Sequence[Rows], unit: Unit, emit: EmitRow) -> None:
        async with SampleTasks(emit) as tasks:
            for rows in units:
                await self._slots.acquire()
                scored = rows[-1:] if unit == "single" else rows
                task = tasks.start(scored, self._score_unit(data, rows, scored, emit))
                task.add_done_callback(self._release)

    def _release(self, _: object) -> None:
        self._slots.release()

    async def _score_unit(self, data: DataProto, rows: Rows, scored: Rows, emit: EmitRow) -> None:
        started = time.monotonic()
        part = data[rows[0] : rows[0] + 1] if len(rows) == 1 else data[rows]
        results: Sequence[Reward | BaseException]
        try:
            results = await self._scorer(part)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything, exit() included
            results = [error] * len(scored)
        for row, result in zip(scored, results, strict=True):
            emit(row, _outcome(result, time.monotonic() - started))

    async def _score_sample(self, row: int, sample: Sample, emit: EmitRow) -> None:
        await self._finish(row, sample, lambda: self.manager.call(self.manager.inputs(sample)), emit)

    async def _finish_in_turn(self, row: int, sample: Sample, awaitable: Awaitable[Any], emit: EmitRow) -> None:
        """Await what a function returned that does not look async, then emit its row."""
        try:
            async with self._slots:
                await self._finish(row, sample, lambda: awaitable, emit)
        finally:
            if inspect.iscoroutine(awaitable):
                awaitable.close()  # one that was cancelled before it began would warn that nobody awaited it

    async def _finish(self, row: int, sample: Sample, call: Callable[[], Awaitable[Any]], emit: EmitRow) -> None:
        started = time.monotonic()
        result: Reward | BaseException
        try:
            result = self.manager.finish(sample, await within(call(), self._timeout_s))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything, exit() included
            result = error
        emit(row, _outcome(result, time.monotonic() - started))


def one_unit(data: DataProto) -> list[Rows]:
    """Return all rows as the one unit that `compute_score` takes; DataError if they can't be one."""
    if not len(data):
        raise DataError("compute_score takes one sample; the batch is empty")
    if len(data) > 1 and data.tensor("responses") is not None and not _has_lengths(data):
        raise DataError(
            f"compute_score got {len(data)} outputs of one trajectory without the column 'response_len': a mask that was "
            "padded on its own does not tell their lengths. Pass it, or score the samples of a batch with compute_score_batch"
        )
    return [list(range(len(data)))]


def _has_lengths(data: DataProto) -> bool:
    return data.column("response_len") is not None or data.tensor("response_len") is not None


def error_policy(config: RewardLoopConfig) -> ErrorPolicy:
    """Return what failed samples are worth by the configuration."""
    on_error = config.reward_model.on_error
    return ErrorPolicy(on_error) if isinstance(on_error, str) else ErrorPolicy("value", on_error.value)


_EMPTY = Outcome.from_error(Unscorable("the response is empty"), 0.0)


def _without_empty(units: Sequence[Rows], unit: Unit, reader: SampleReader, emit: EmitRow) -> list[Rows]:
    """Return the units less the rows that have no response, whose outcome is emitted at once."""
    if not reader.any_empty:
        return list(units)
    full = []
    for rows in units:
        judged = rows[-1:] if unit == "single" else rows
        kept = [row for row in judged if not reader.is_empty(row)]
        for row in rows if not kept else judged:
            if reader.is_empty(row) or not kept:
                emit(row, _EMPTY)
        if kept:
            full.append(rows if unit == "single" else kept)
    return full


def _for_whole_trajectory(units: Sequence[Rows], reader: SampleReader, emit: EmitRow) -> EmitRow:
    """Return an `emit` that gives the outcome of a trajectory's last output to its earlier ones as well."""
    earlier = {rows[-1]: rows[:-1] for rows in units if len(rows) > 1}
    if not earlier:
        return emit

    def emit_all(row: int, outcome: Outcome) -> None:
        for output in earlier.get(row, ()):
            emit(output, _EMPTY if reader.is_empty(output) else _of_earlier_output(outcome))
        emit(row, outcome)

    return emit_all


def _of_earlier_output(outcome: Outcome) -> Outcome:
    """Per-token rewards belong to the last output's tokens; the earlier ones get their sum."""
    if outcome.reward is None or outcome.reward.tokens is None:
        return outcome
    return replace(outcome, reward=replace(outcome.reward, tokens=None))


def _outcome(result: Reward | BaseException, seconds: float) -> Outcome:
    if isinstance(result, BaseException):
        return Outcome.from_error(result, seconds)
    return Outcome("ok", result, "", seconds)

"""Scoring a rollout file of any size into another one, in bounded memory, so that it can be continued after a crash.

Invariants: the rows of a few chunks are held at a time; a chunk's file is written when its last row has ended; an outcome
that is older than `_FLUSH_S` seconds is on disk, also while nothing else ends.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import reward_loop
from reward_loop.errors import DataError
from reward_loop.loop import RewardLoopManager
from reward_loop.loop.worker import error_policy
from reward_loop.outcome import Outcome
from reward_loop.runs.batches import chunk_rows, score_chunks
from reward_loop.runs.fields import FieldMap, Row, data_source_of
from reward_loop.runs.manifest import manifest_of
from reward_loop.runs.partial import PartialRun
from reward_loop.runs.scored import Tally, outcome_fields
from reward_loop.runs.sink import Sink, sink_for
from reward_loop.runs.source import Chunk, RolloutSource

_FLUSH_S = 0.5

Progress = Callable[[Row], None]
"""Called with the added fields of each row as it ends."""


@dataclass(slots=True)
class _Open:
    """A chunk under way."""

    chunk: Chunk
    outcomes: dict[int, Row]
    """By row of the chunk, the added fields of those that have ended."""
    unwritten: dict[int, Row] = field(default_factory=dict)


class FileScoring:
    """One run of `manager` over `source` into `output`; a context manager, so that another process may continue it."""

    def __init__(
        self, manager: RewardLoopManager, source: RolloutSource, fields: FieldMap, output: Path, progress: Progress
    ) -> None:
        self._manager = manager
        self._source = source
        self._fields = fields
        self._output = output
        self._progress = progress
        self._policy = error_policy(manager.config)
        self._sink: Sink = sink_for(output, source.arrow_schema())
        self._partial = PartialRun(output)
        self._open: dict[int, _Open] = {}
        self._chunk_rows = chunk_rows(manager)
        self._scored_now = 0
        self.first_failure = ""
        """The message of the first row that failed in this process, if any did."""

    def begin(self, *, resume: bool, overwrite: bool) -> Tally:
        """Start or continue the run; return the tally of the chunks that are finished already."""
        if self._output.resolve() == self._source.path.resolve():
            raise DataError(f"{self._output} is the input itself: write to another name")
        if self._manager.unit == "group" and self._fields.uid is None:
            raise DataError("this reward manager scores groups: name the field that tells them apart with --uid-field FIELD")
        function = self._manager.reward_function
        run = manifest_of(self._source, self._fields, self._chunk_rows, self._manager.config, function)
        self._partial.begin(run, resume=resume, overwrite=overwrite)
        return _total(self._partial.finished)[1]

    async def run(self) -> None:
        """Score every row that is not yet scored; whatever ends it early, what was scored is kept."""
        try:
            async with asyncio.TaskGroup() as tasks:
                flushing = tasks.create_task(self._flush_now_and_then())
                await score_chunks(self._manager, self._work(), self._fields, self._ended)
                flushing.cancel()
        except ExceptionGroup as group:  # of one: the error of the first task to fail, which ended the other
            raise group.exceptions[0] from None
        finally:
            self._flush()

    def end(self, started_at: datetime, seconds: float) -> dict[str, Any]:
        """Put the output together, write its summary, remove the partial run; return the summary."""
        merged = self._partial.directory / "merged"
        self._sink.merge([self._partial.chunk_file(index) for index in sorted(self._partial.finished)], merged)
        summary = self._summary(started_at, seconds)
        text = json.dumps(summary, indent=1, ensure_ascii=False)
        summary_path(self._output).write_text(text, encoding="utf-8", errors="backslashreplace")
        merged.replace(self._output)
        self._partial.remove()
        return summary

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._partial.close()

    def _summary(self, started_at: datetime, seconds: float) -> dict[str, Any]:
        sources, total = _total(self._partial.finished)
        return {
            "schema": 1,
            "version": reward_loop.__version__,
            "input": str(self._source.path),
            "output": str(self._output),
            "rows": total.rows,
            "rows_before": total.rows - self._scored_now,
            "statuses": dict(total.statuses),
            "seconds": round(seconds, 3),
            "rows_per_second": round(self._scored_now / seconds, 1) if seconds else None,
            "reward": {"mean": total.mean, **_extremes(total)},
            "sources": {
                name: {"rows": tally.rows, "mean": tally.mean, "statuses": dict(tally.statuses)}
                for name, tally in sorted(sources.items())
            },
            "fields": self._fields.as_dict(),
            "config": self._manager.config.model_dump(mode="json"),
            "started_at": started_at.isoformat(timespec="seconds"),
            "finished_at": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    def _work(self) -> Iterator[tuple[Chunk, list[int]]]:
        """Open chunk after chunk, and yield which of its rows are still to be scored."""
        for chunk in self._source.chunks(self._chunk_rows, self._partial.finished.__contains__):
            opened = self._open[chunk.index] = _Open(chunk, self._recorded(chunk.index))
            for fields in opened.outcomes.values():
                self._progress(fields)
            yield chunk, [row for row in range(len(chunk.rows)) if row not in opened.outcomes]
            self._close_if_complete(chunk.index)

    def _recorded(self, index: int) -> dict[int, Row]:
        if self._manager.unit == "single":
            return self._partial.recorded(index)
        self._partial.forget(index)  # what is scored together must be scored again together
        return {}

    def _ended(self, chunk: Chunk, row: int, outcome: Outcome) -> None:
        fields = outcome_fields(outcome, self._policy)
        opened = self._open[chunk.index]
        opened.outcomes[row] = opened.unwritten[row] = fields
        self._scored_now += 1
        if outcome.failed and not self.first_failure:
            self.first_failure = f"row {chunk.first_row + row}: {outcome.message}"
        self._progress(fields)
        self._close_if_complete(chunk.index)

    def _close_if_complete(self, index: int) -> None:
        opened = self._open.get(index)
        if opened is None or len(opened.outcomes) < len(opened.chunk.rows):
            return
        rows: list[Row] = []
        tallies: dict[str, Tally] = {}
        for number, row in enumerate(opened.chunk.rows):
            fields = opened.outcomes[number]
            known = row if isinstance(row, dict) else {}
            rows.append({**known, **fields})
            tallies.setdefault(_source_name(known, self._fields), Tally()).add(fields)
        self._sink.write_chunk(self._partial.chunk_file(index), rows)
        self._partial.finish(index, tallies)
        del self._open[index]

    async def _flush_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_S)
            self._flush()

    def _flush(self) -> None:
        for index, opened in self._open.items():
            if opened.unwritten:
                self._partial.record(index, opened.unwritten)
                opened.unwritten = {}


def summary_path(output: Path) -> Path:
    """Return where the summary of a scored file stands."""
    return output.with_name(f"{output.name}.summary.json")


def _source_name(row: Row, fields: FieldMap) -> str:
    try:
        return data_source_of(row, fields)
    except DataError:
        return "(unknown)"


def _total(chunks: dict[int, dict[str, Tally]]) -> tuple[dict[str, Tally], Tally]:
    sources: dict[str, Tally] = {}
    total = Tally()
    for index in sorted(chunks):  # in the file's order, so that sums are those of an undisturbed run to the last bit
        for name, tally in chunks[index].items():
            sources.setdefault(name, Tally()).merge(tally)
            total.merge(tally)
    return sources, total


def _extremes(total: Tally) -> dict[str, float | None]:
    return {
        "min": total.reward_min if total.rewards else None,
        "max": total.reward_max if total.rewards else None,
    }

"""The directory `OUTPUT.partial` of an unfinished run: what survives a crash, a kill -9 or Ctrl-C.

It holds `run.json` (what is being scored, and how), a file per finished chunk, `finished.jsonl` with a line per finished chunk,
and a journal per chunk under way with a line per outcome. Invariants: one process at a time writes to it; a chunk is finished
when its line is there, which is written after its file is in place; a torn line counts as not written; so no row is lost, and
none is there twice.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from reward_loop.errors import DataError
from reward_loop.runs.fields import Row
from reward_loop.runs.manifest import Manifest, changes
from reward_loop.runs.scored import Tally, to_json


class PartialRun:
    """The stored state of a run that writes to `output`."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.directory = output.with_name(f"{output.name}.partial")
        self.finished: dict[int, dict[str, Tally]] = {}
        """The tallies of each finished chunk, per data source."""
        self._lock: int | None = None

    def begin(self, run: Manifest, *, resume: bool, overwrite: bool) -> None:
        """Start a run or continue it; DataError if one is there and neither was asked for, or if it was another run.

        An output that is to be overwritten stays as it is until the new one is complete.
        """
        begun = self.directory.exists()
        if resume and overwrite:
            raise DataError("--resume continues what is there and --overwrite drops it; give one of the two")
        if self.output.is_dir():
            raise DataError(f"{self.output} is a directory: give the name of a file in it")
        if self.output.exists() and not (overwrite or (resume and begun)):
            state = "is complete, there is nothing to resume" if resume else "is there already"
            raise DataError(f"{self.output} {state}: take another name, or score anew with --overwrite")
        if begun and not (resume or overwrite):
            raise DataError(f"{self.directory} holds an unfinished run: continue it with --resume, or drop it with --overwrite")
        self.directory.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self.directory)
        if overwrite:
            for file in self.directory.iterdir():
                file.unlink()
        if self._manifest.exists():
            self._continue(run)
        else:
            _write(self._manifest, json.dumps(run, indent=1))

    def finish(self, index: int, tallies: Mapping[str, Tally]) -> None:
        """Mark a chunk, whose file is in place, as finished."""
        line = json.dumps({"chunk": index, "sources": {name: tally.as_dict() for name, tally in tallies.items()}})
        with (self.directory / "finished.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")
        self.finished[index] = dict(tallies)
        self.forget(index)

    def chunk_file(self, index: int) -> Path:
        """Where a chunk's rows belong."""
        return self.directory / f"chunk-{index:08d}"

    def record(self, index: int, outcomes: Mapping[int, Row]) -> None:
        """Append outcomes (by row of the chunk) to the chunk's journal."""
        lines = [f"{to_json({'row': row, **fields})}\n" for row, fields in outcomes.items()]
        with self._journal(index).open("a", encoding="utf-8") as file:
            file.write("".join(lines))

    def recorded(self, index: int) -> dict[int, Row]:
        """Return the outcomes in a chunk's journal."""
        outcomes: dict[int, Row] = {}
        for fields in _whole_lines(self._journal(index)):
            outcomes[fields.pop("row")] = fields
        return outcomes

    def forget(self, index: int) -> None:
        """Drop a chunk's journal."""
        self._journal(index).unlink(missing_ok=True)

    def close(self) -> None:
        """Let another process continue; a second call does nothing."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def remove(self) -> None:
        """Remove the directory: the output is complete."""
        shutil.rmtree(self.directory)

    @property
    def _manifest(self) -> Path:
        return self.directory / "run.json"

    def _journal(self, index: int) -> Path:
        return self.directory / f"chunk-{index:08d}.journal"

    def _continue(self, run: Manifest) -> None:
        if changed := changes(json.loads(self._manifest.read_text(encoding="utf-8")), run):
            raise DataError(
                f"{self.directory} is of another run: {'; '.join(changed)}. "
                "Put that back to continue, or start anew with --overwrite"
            )
        for line in _whole_lines(self.directory / "finished.jsonl"):
            self.finished[line["chunk"]] = {name: Tally.from_dict(tally) for name, tally in line["sources"].items()}


def _locked(directory: Path) -> int:
    """Lock a directory until the returned descriptor is closed, which the end of the process does as well."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise DataError(f"{directory} is being written by another process: wait for it, or end it first") from None
    except OSError:  # some network file systems have no locks: better unguarded than not at all
        pass
    return descriptor


def _whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a file that was appended to until something ended it, and cut off a torn last one."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        end = 0
        for line in file:
            if not line.endswith(b"\n"):
                file.truncate(end)
                return
            end += len(line)
            try:
                yield json.loads(line)
            except ValueError:  # torn in a write that a signal ended, before the last write of the run
                continue


def _write(path: Path, text: str) -> None:
    """Write a file that is there whole or not at all."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)

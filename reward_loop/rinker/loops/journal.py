"""Files of lines that a run appends to, and cuts when it goes on from an earlier step.

Invariants: a line is written whole before the next; what a killed run left of a line is not read, and is cut off before
anything is appended.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from reward_loop.errors import DataError


class Journal:
    """JSON objects, one on each line of the file `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mended = False

    def read(self) -> list[dict[str, Any]]:
        """Return all lines; raises DataError for one that is no object, unless it is the last one without its end."""
        if not self.path.exists():
            return []
        # Bytes, for a killed run may have left half of a character. Not splitlines(), which cuts at U+2028 inside a string too.
        whole, _, _ = self.path.read_bytes().rpartition(b"\n")
        return [self._parsed(number, line) for number, line in enumerate(whole.split(b"\n"), 1) if line]

    def append(self, line: Mapping[str, Any]) -> None:
        """Write one more line; it is on the disk when this returns."""
        text = json.dumps(line, ensure_ascii=False, allow_nan=False)
        self._mend()
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())

    def keep(self, wanted: Callable[[Mapping[str, Any]], bool]) -> None:
        """Drop all other lines, and what is left of a broken one."""
        if not self.path.exists():
            return
        kept = [json.dumps(line, ensure_ascii=False) + "\n" for line in self.read() if wanted(line)]
        draft = self.path.with_name(f"{self.path.name}.draft")
        draft.write_text("".join(kept), encoding="utf-8")
        draft.replace(self.path)

    def _mend(self) -> None:
        """Cut off what a killed run left of a line, before this one writes any."""
        if not self._mended and self.path.exists():
            whole, end, torn = self.path.read_bytes().rpartition(b"\n")
            if torn:
                os.truncate(self.path, len(whole) + len(end))
        self._mended = True

    def _parsed(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            parsed = json.loads(line)
        except ValueError as error:
            raise DataError(f"{self.path}, line {number}: no JSON ({error}); remove the line or begin another run") from error
        if not isinstance(parsed, dict):
            raise DataError(f"{self.path}, line {number}: {parsed!r:.80} is no object; remove the line or begin another run")
        return cast("dict[str, Any]", parsed)

"""JSON Lines files of data."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from reward_loop.errors import DataError


def read_rows(path: str | Path) -> list[dict[str, Any]]:
    """Return the objects of a JSON Lines file, which may be gzipped. DataError names the line that is none."""
    path = Path(path)
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            rows = list(_rows(path, cast("Iterator[str]", file)))
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{path} can't be read: {error}") from error
    if not rows:
        raise DataError(f"{path} holds no rows")
    return rows


def _rows(path: Path, lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}, line {number}: no JSON: {error}") from error
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {number}: {row!r:.80} is no object")
        yield cast("dict[str, Any]", row)

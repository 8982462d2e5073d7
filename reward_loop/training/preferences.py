"""Preferences: two answers to one prompt, of which one is better; read from JSON Lines and Parquet.

Invariant: a file is read whole or refused; a refusal names the rows, by line of a JSON Lines file and by row of a Parquet file.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, cast

from reward_loop.errors import DataError

Message: TypeAlias = Mapping[str, Any]
Text: TypeAlias = str | Sequence[int] | Sequence[Message]
"""A text, token ids, or chat messages."""

_SHOWN_ROWS = 5
_READABLE = (".jsonl", ".ndjson", ".json", ".jsonl.gz", ".ndjson.gz", ".json.gz")


@dataclass(frozen=True, slots=True)
class Preference:
    """Two answers to a prompt. All three are text, or all token ids; with messages, see `encode_preferences`."""

    prompt: Text
    """Empty where the answers hold all of the conversation."""
    chosen: Text
    rejected: Text
    margin: float = 0.0
    """By how much the chosen answer's reward should be higher, at least."""
    label: int | None = None
    """Which label of a head with several the preference is about; None: as the readout says."""


def read_preferences(
    path: str | Path,
    *,
    prompt_field: str | None = "prompt",
    chosen_field: str = "chosen",
    rejected_field: str = "rejected",
) -> list[Preference]:
    """Read every row; the fields `margin` and `label` are optional, and so is the prompt (`prompt_field=None` ignores it).

    Raises DataError for a file that can't be read, that holds nothing, and for bad rows, of which it shows the first few.
    """
    path = Path(path)
    found: list[Preference] = []
    bad: list[str] = []
    for place, row in _rows(path):
        try:
            found.append(_preference(row, prompt_field, chosen_field, rejected_field))
        except DataError as error:
            bad.append(f"{place}: {error.message}")
    if bad:
        more = f"\n  … and {len(bad) - _SHOWN_ROWS:,} more" if len(bad) > _SHOWN_ROWS else ""
        shown = "".join(f"\n  {line}" for line in bad[:_SHOWN_ROWS])
        raise DataError(f"{path}: {len(bad):,} of {len(bad) + len(found):,} rows are no preferences:{shown}{more}")
    if not found:
        raise DataError(f"{path} holds no rows")
    return found


def write_preferences(path: str | Path, preferences: Iterable[Preference]) -> Path:
    """Write a JSON Lines file that `read_preferences` reads; return its path."""
    path = Path(path)
    with path.open("w", encoding="utf-8") as file:
        for one in preferences:
            row = {"prompt": one.prompt, "chosen": one.chosen, "rejected": one.rejected}
            optional = {"margin": one.margin} if one.margin else {}
            labelled = {} if one.label is None else {"label": one.label}
            file.write(json.dumps({**row, **optional, **labelled}, ensure_ascii=False) + "\n")
    return path


def _rows(path: Path) -> Iterator[tuple[str, object]]:
    try:
        if path.suffix == ".parquet":
            yield from _parquet_rows(path)
        elif path.name.endswith(_READABLE):
            yield from _json_rows(path)
        else:
            raise DataError(f"{path} is neither JSON Lines ({', '.join(_READABLE)}) nor Parquet (.parquet), by its name")
    except (OSError, EOFError) as error:
        raise DataError(f"{path} can't be read: {error}") from error


def _json_rows(path: Path) -> Iterator[tuple[str, object]]:
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                yield f"line {number}", _parsed(line)


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError as error:  # UnicodeDecodeError too; a bad line is a bad row, told with the others
        return DataError(f"it is no JSON: {error}")


def _parquet_rows(path: Path) -> Iterator[tuple[str, object]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            number = 0
            for batch in file.iter_batches():
                for row in batch.to_pylist():
                    yield f"row {number}", row
                    number += 1
    except pa.ArrowInvalid as error:
        raise DataError(f"{path} is no Parquet file: {error}") from error


def _preference(row: object, prompt_field: str | None, chosen_field: str, rejected_field: str) -> Preference:
    if isinstance(row, DataError):
        raise row
    if not isinstance(row, dict):
        raise DataError(f"it is {row!r:.80}, not an object with the fields {chosen_field} and {rejected_field}")
    values = cast("dict[str, Any]", row)
    prompt = values.get(prompt_field) if prompt_field is not None else None
    chosen, rejected = (_text(values, field) for field in (chosen_field, rejected_field))
    one = Preference(
        chosen[:0] if prompt is None else _text(values, str(prompt_field), may_be_empty=True),
        chosen,
        rejected,
        _margin(values.get("margin")),
        _label(values.get("label")),
    )
    check_preference(one)
    return one


def check_preference(one: Preference) -> None:
    """Raise DataError for a preference that nothing can be learnt from, or whose parts are of different kinds."""
    if one.chosen == one.rejected:
        raise DataError(f"chosen and rejected are the same: {one.chosen!r:.80}")
    prompt, chosen, rejected = map(kind_of, (one.prompt, one.chosen, one.rejected))
    if chosen != rejected:
        raise DataError(f"chosen is {chosen}, rejected {rejected}: both must be of one kind")
    if one.prompt and prompt != chosen and (prompt, chosen) != ("messages", "text"):
        raise DataError(
            f"the prompt is {prompt}, the answers are {chosen}; make them the same, or leave out a prompt that the answers repeat"
        )


def kind_of(text: Text) -> str:
    """Return "text", "token ids" or "messages"."""
    if isinstance(text, str):
        return "text"
    return "messages" if text and isinstance(text[0], Mapping) else "token ids"


def _text(row: Mapping[str, Any], field: str, *, may_be_empty: bool = False) -> Text:
    if field not in row:
        raise DataError(f"the field {field!r} is missing; there are {', '.join(map(repr, row)) or 'none'}")
    value = row[field]
    if isinstance(value, str) and (value or may_be_empty):
        return value
    if isinstance(value, list) and (value or may_be_empty):
        items: list[Any] = value
        if all(isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in items):
            return tuple(items)
        if all(isinstance(item, dict) and isinstance(item.get("role"), str) and "content" in item for item in items):
            return tuple(items)
    raise DataError(f"{field} must be a text, token ids or chat messages (role, content), and not empty; it is {value!r:.80}")


def _margin(value: object) -> float:
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise DataError(f"margin must be a finite number; it is {value!r:.80}")
    return float(value)


def _label(value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise DataError(f"label must be a number of a label, from 0; it is {value!r:.80}")

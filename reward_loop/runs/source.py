"""Rollout files, read in chunks: JSON Lines (also gzipped), Parquet, and what Hugging Face's `save_to_disk` writes.

Invariants: chunk k always holds the rows [k*n, (k+1)*n), so that a resumed run sees the chunks that the first one saw;
a skipped chunk is never turned into Python objects; at most one chunk is held at a time; values are plain Python.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count, groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from typing_extensions import override

from reward_loop.errors import ConfigError, DataError
from reward_loop.runs.fields import (
    FieldMap,
    Row,
    RowError,
    data_source_of,
    extra_info_of,
    look_up,
    prompt_of,
    response_of,
    reward_model_of,
)

Format = Literal["jsonl", "parquet", "huggingface"]

HEAD_ROWS = 100
"""How many rows are looked at to learn the fields of a file."""
PASSED_ON = ("tool_extra_fields", "__num_turns__", "reward_scores")
"""Fields that reward managers know by these names, handed on where the file has them."""
_AS_JSON = {b"reward_loop": b"json"}
_PROBE_BYTES = 64 * 1024
_SUFFIXES: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".jsonl.gz": "jsonl",
    ".json.gz": "jsonl",
    ".parquet": "parquet",
}


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows `first_row`, `first_row + 1`, … of a file; a row that can't be read is a RowError in its place."""

    index: int
    first_row: int
    rows: list[Row | RowError]


def json_field(name: str) -> pa.Field:
    """The schema of a Parquet column of JSON text that is read back as the values that it was written from."""
    return pa.field(name, pa.string(), metadata=_AS_JSON)


def json_names(schema: pa.Schema) -> list[str]:
    """The columns that `json_field` made."""
    return [field.name for field in schema if (field.metadata or {}).items() >= _AS_JSON.items()]


def every_chunk(index: int) -> bool:
    """Skip none."""
    return False


class RolloutSource(ABC):
    """One rollout file that has at least one row."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @abstractmethod
    def num_rows(self) -> int:
        """How many rows `chunks` gives in all. Reads a JSON Lines file once; costs nothing for the others."""

    @abstractmethod
    def chunks(self, rows_per_chunk: int, skip: Callable[[int], bool] = every_chunk) -> Iterator[Chunk]:
        """The chunks whose index `skip` does not refuse, in order. All but the last hold `rows_per_chunk` rows."""

    @abstractmethod
    def arrow_schema(self) -> pa.Schema | None:
        """The columns' types; None for JSON Lines, which has none."""

    def names(self) -> list[str]:
        """The top-level fields; for JSON Lines those of the first rows."""
        return list(dict.fromkeys(name for row in self.head() for name in row))

    def head(self) -> list[Row]:
        """The readable ones of the first rows."""
        return [row for row in next(self.chunks(HEAD_ROWS)).rows if isinstance(row, dict)]

    def fingerprint(self) -> str:
        """Changes when the file does: from sizes, modification times, and the first and last 64 KiB."""
        digest = hashlib.sha256()
        files = sorted(file for file in self.path.rglob("*") if file.is_file()) if self.path.is_dir() else [self.path]
        for file in files:
            stat = file.stat()
            digest.update(f"{file.relative_to(self.path)} {stat.st_size} {stat.st_mtime_ns}\n".encode())
            with file.open("rb") as stream:
                digest.update(stream.read(_PROBE_BYTES))
                stream.seek(max(0, stat.st_size - _PROBE_BYTES))
                digest.update(stream.read(_PROBE_BYTES))
        return digest.hexdigest()


class JsonlSource(RolloutSource):
    """One JSON object a line; blank lines are no rows."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        with _reading(path), self._open() as stream:
            number, line = next(_numbered(stream), (0, b""))
        if not line:
            raise _empty(path)
        if isinstance(row := _parse(path, 0, number, line), RowError):
            raise DataError(f"{row.error.message}. JSON Lines holds one object a line; is this the right format?")

    @override
    def num_rows(self) -> int:
        with _reading(self.path), self._open() as stream:
            return sum(1 for _ in _numbered(stream))

    @override
    def chunks(self, rows_per_chunk: int, skip: Callable[[int], bool] = every_chunk) -> Iterator[Chunk]:
        with _reading(self.path), self._open() as stream:
            lines = _numbered(stream)
            for index in count():
                first_row = index * rows_per_chunk
                batch = list(islice(lines, rows_per_chunk))
                if not batch:
                    return
                if not skip(index):
                    rows = [_parse(self.path, row, *numbered) for row, numbered in enumerate(batch, first_row)]
                    yield Chunk(index, first_row, rows)

    @override
    def arrow_schema(self) -> None:
        return None

    def _open(self) -> IO[bytes]:
        return cast("IO[bytes]", gzip.open(self.path)) if self.path.suffix == ".gz" else self.path.open("rb")


class ParquetSource(RolloutSource):
    """One Parquet file; row groups that lie in skipped chunks are not read."""

    def __init__(self, path: Path, columns: Sequence[str] | None = None) -> None:
        super().__init__(path)
        self._columns = None if columns is None else list(columns)
        with self._file() as file:
            self._schema: pa.Schema = file.schema_arrow
            self._json_names = json_names(self._schema)
            self._group_rows = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        if not sum(self._group_rows):
            raise _empty(path)

    @override
    def num_rows(self) -> int:
        return sum(self._group_rows)

    @override
    def names(self) -> list[str]:
        return list(self._schema.names)

    @override
    def chunks(self, rows_per_chunk: int, skip: Callable[[int], bool] = every_chunk) -> Iterator[Chunk]:
        for index, pieces in groupby(self._pieces(rows_per_chunk, skip), key=itemgetter(0)):
            if not skip(index):
                rows: list[Row | RowError] = [self._decoded(row) for _, piece in pieces for row in piece.to_pylist()]
                yield Chunk(index, index * rows_per_chunk, rows)

    @override
    def arrow_schema(self) -> pa.Schema:
        return self._schema

    def _decoded(self, row: Row) -> Row:
        return row | {name: json.loads(row[name]) for name in self._json_names if row.get(name) is not None}

    def _pieces(self, rows_per_chunk: int, skip: Callable[[int], bool]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """(chunk index, rows of that chunk), in order; a chunk may come in several pieces."""
        row = 0
        with self._file() as file:
            for group, group_rows in enumerate(self._group_rows):
                end = row + group_rows
                if all(skip(index) for index in range(row // rows_per_chunk, -(-end // rows_per_chunk))):
                    row = end
                    continue
                for batch in file.iter_batches(rows_per_chunk, row_groups=[group], columns=self._columns):
                    while batch.num_rows:
                        piece = batch.slice(0, rows_per_chunk - row % rows_per_chunk)
                        yield row // rows_per_chunk, piece
                        row += piece.num_rows
                        batch = batch.slice(piece.num_rows)

    @contextmanager
    def _file(self) -> Generator[pq.ParquetFile]:
        # With a buffer a column is streamed; without, all of a row group (which may be the whole file) is loaded.
        with _reading(self.path), pq.ParquetFile(self.path, buffer_size=1 << 20, pre_buffer=False) as file:
            yield file


class HuggingFaceSource(RolloutSource):
    """A directory written by `Dataset.save_to_disk`, memory-mapped."""

    def __init__(self, path: Path, columns: Sequence[str] | None = None) -> None:
        super().__init__(path)
        if (splits := path / "dataset_dict.json").is_file():
            names = cast("dict[str, list[str]]", json.loads(splits.read_text("utf-8")))["splits"]
            raise DataError(f"{path} holds the splits {', '.join(names)}; give one of them, such as {path / names[0]}")
        if not (path / "state.json").is_file():
            raise DataError(
                f"{path} is a directory, but none that Dataset.save_to_disk wrote (it has no state.json); "
                "give a .jsonl or .parquet file, or a saved dataset"
            )
        dataset = _load_saved(path)
        self._schema: pa.Schema = dataset.features.arrow_schema
        self._dataset = (dataset if columns is None else dataset.select_columns(list(columns))).with_format("arrow")
        if not len(self._dataset):
            raise _empty(path)

    @override
    def num_rows(self) -> int:
        return len(self._dataset)

    @override
    def names(self) -> list[str]:
        return list(self._schema.names)

    @override
    def chunks(self, rows_per_chunk: int, skip: Callable[[int], bool] = every_chunk) -> Iterator[Chunk]:
        with _reading(self.path):
            for index, first_row in enumerate(range(0, len(self._dataset), rows_per_chunk)):
                if not skip(index):
                    table: pa.Table = self._dataset[first_row : first_row + rows_per_chunk]
                    yield Chunk(index, first_row, table.to_pylist())

    @override
    def arrow_schema(self) -> pa.Schema:
        return self._schema


def open_source(path: Path, format: Format | None = None, columns: Sequence[str] | None = None) -> RolloutSource:  # noqa: A002
    """Open a rollout file, by its suffix unless its format is given.

    `columns` limits Parquet and Hugging Face data to these fields. Raises DataError for a file that is missing, empty,
    unreadable or of no known format.
    """
    if not path.exists():
        raise DataError(f"{path}: no such file or directory")
    found = format or ("huggingface" if path.is_dir() else _format_of(path))
    match found:
        case "jsonl":
            return JsonlSource(path)
        case "parquet":
            return ParquetSource(path, columns)
        case "huggingface":
            return HuggingFaceSource(path, columns)


def batch_columns(
    rows: Sequence[Row | RowError], fields: FieldMap, first_row: int = 0
) -> tuple[dict[str, NDArray[np.object_]], list[RowError | None]]:
    """(the columns of the rows that can be scored, one error or None per row); `first_row` is the number of `rows[0]`.

    Columns: data_source, reward_model, extra_info, raw_prompt (chat messages or None), `solution_str` or
    `response_ids`; and uid, prompt_ids and those of PASSED_ON where the rows have them.
    """
    good: list[dict[str, Any]] = []
    errors: list[RowError | None] = []
    for number, row in enumerate(rows, first_row):
        outcome = row if isinstance(row, RowError) else _sample(number, row, fields)
        errors.append(outcome if isinstance(outcome, RowError) else None)
        if not isinstance(outcome, RowError):
            good.append(outcome)
    names = dict.fromkeys(name for sample in good for name in sample)
    return {name: _object_array([sample.get(name) for sample in good]) for name in names}, errors


def _sample(number: int, row: Row, fields: FieldMap) -> dict[str, Any] | RowError:
    try:
        prompt = prompt_of(row, fields)
        sample: dict[str, Any] = {
            "data_source": data_source_of(row, fields),
            "reward_model": reward_model_of(row, fields),
            "extra_info": extra_info_of(row, fields),
            "raw_prompt": prompt if prompt and isinstance(prompt[0], dict) else None,
            "solution_str" if fields.response_kind == "text" else "response_ids": response_of(row, fields),
        }
    except DataError as error:
        return RowError(number, DataError(f"row {number}: {error}"))
    if prompt and isinstance(prompt[0], int):
        sample["prompt_ids"] = prompt
    if fields.uid is not None:
        sample["uid"] = look_up(row, fields.uid)
    return sample | {name: row[name] for name in PASSED_ON if name in row}


def _object_array(values: list[Any]) -> NDArray[np.object_]:
    # Filled one by one: numpy would make a matrix of lists that happen to have the same length.
    array = np.empty(len(values), dtype=object)
    for position, value in enumerate(values):
        array[position] = value
    return array


def _numbered(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    return ((number, line) for number, line in enumerate(stream, 1) if not line.isspace())


def _parse(path: Path, row: int, number: int, line: bytes) -> Row | RowError:
    try:
        value = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # ValueError: neither UTF-8 nor JSON
        return RowError(row, DataError(f"{path}, line {number}: not valid JSON ({error}): {_excerpt(line)}"))
    if not isinstance(value, dict):
        return RowError(row, DataError(f"{path}, line {number}: not a JSON object: {_excerpt(line)}"))
    return cast("Row", value)


def _excerpt(line: bytes) -> str:
    text = line.strip().decode("utf-8", errors="replace")
    return repr(text if len(text) <= 80 else text[:80] + "…")


def _format_of(path: Path) -> Format:
    for suffix, found in _SUFFIXES.items():
        if path.name.endswith(suffix):
            return found
    raise DataError(f"{path}: the format is not known by this name; rename it to one of {', '.join(_SUFFIXES)}")


def _load_saved(path: Path) -> Any:
    try:
        import datasets
    except ModuleNotFoundError as error:
        raise ConfigError(f"{path} needs the datasets library: pip install reward-loop[datasets]") from error
    with _reading(path):
        return datasets.load_from_disk(str(path))


def _empty(path: Path) -> DataError:
    return DataError(f"{path} holds no rows; nothing can be scored")


@contextmanager
def _reading(path: Path) -> Generator[None]:
    """Turn what a damaged or unreadable file raises into a DataError that names it."""
    try:
        yield
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        problem = " ".join(str(error).split())  # Arrow's messages have several lines
        raise DataError(f"{path} can't be read: {problem}; is it complete, and of the format that its name says?") from error

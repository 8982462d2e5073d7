"""Writing scored rows: a file per chunk while a run goes on, one file of them all at its end.

Invariants: a few chunks are held at a time, whatever the size of the run; a chunk's file is in place whole or not at all; rows
stand in the input's order, and what they hold can be read back as it came in.
"""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from reward_loop.errors import DataError
from reward_loop.runs.fields import Row
from reward_loop.runs.scored import OUTCOME_SCHEMA, to_json
from reward_loop.runs.source import json_field, json_names

_GROUP_BYTES = 8 * 1024 * 1024
"""Rows are gathered up to this size before they become a row group: with one per chunk, reading the file would be slow."""


class Sink(ABC):
    """One output format."""

    @abstractmethod
    def write_chunk(self, path: Path, rows: Sequence[Row]) -> None:
        """Write the scored rows of one chunk, the extra info as an object."""

    @abstractmethod
    def merge(self, chunks: Sequence[Path], path: Path) -> None:
        """Write the output to `path` from the chunks' files, in order."""


class JsonlSink(Sink):
    """One JSON object a line."""

    def write_chunk(self, path: Path, rows: Sequence[Row]) -> None:
        """Write the rows."""
        part = _part(path)
        part.write_text("".join(f"{to_json(row)}\n" for row in rows), encoding="utf-8")
        part.replace(path)

    def merge(self, chunks: Sequence[Path], path: Path) -> None:
        """Join the files."""
        with path.open("wb") as joined:
            for chunk in chunks:
                with chunk.open("rb") as file:
                    shutil.copyfileobj(file, joined)


class TypedParquetSink(Sink):
    """Parquet with the types of an input that has them."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = _with_outcome([field for field in schema if field.name not in OUTCOME_SCHEMA.names])

    def write_chunk(self, path: Path, rows: Sequence[Row]) -> None:
        """Write the rows as Parquet."""
        _write_table(path, _table(rows, self._schema))

    def merge(self, chunks: Sequence[Path], path: Path) -> None:
        """Copy the chunks."""
        _write_tables(path, self._schema, (pq.read_table(chunk, schema=self._schema) for chunk in chunks))


class InferredParquetSink(Sink):
    """Parquet from an input without types, which are read off the rows, chunk by chunk.

    A field that no single type holds as it is (numbers and text, objects of different keys) becomes JSON text.
    """

    def write_chunk(self, path: Path, rows: Sequence[Row]) -> None:
        """Write the rows with types of their own."""
        table = _table(rows, OUTCOME_SCHEMA)
        names = dict.fromkeys(name for row in rows for name in row if name not in OUTCOME_SCHEMA.names)
        for place, name in enumerate(names):
            values = [row.get(name) for row in rows]
            column = _exact_column(values)
            table = table.add_column(
                place,
                json_field(name) if column is None else pa.field(name, column.type),
                _json_column(values) if column is None else column,
            )
        _write_table(path, table)

    def merge(self, chunks: Sequence[Path], path: Path) -> None:
        """Find types that hold the rows of all chunks, and copy them."""
        fields = _unified(map(pq.read_schema, chunks))
        while True:
            schema = _with_outcome(list(fields.values()))
            try:
                _write_tables(path, schema, (_conformed(pq.read_table(chunk), schema) for chunk in chunks))
            except _Misfit as misfit:
                fields[misfit.field] = json_field(misfit.field)
            else:
                return


def sink_for(output: Path, input_schema: pa.Schema | None) -> Sink:
    """Return the sink for a file of this name: .parquet or .jsonl; DataError for another."""
    if output.name.endswith((".jsonl", ".ndjson")):
        return JsonlSink()
    if output.name.endswith(".parquet"):
        return InferredParquetSink() if input_schema is None else TypedParquetSink(input_schema)
    raise DataError(f"{output}: the output's name must end in .parquet or .jsonl")


class _Misfit(Exception):
    """The type for all chunks would change a value of this field."""

    def __init__(self, field: str) -> None:
        super().__init__(field)
        self.field = field


def _unified(schemas: Iterable[pa.Schema]) -> dict[str, pa.Field]:
    """Return the fields of all schemas in the order of their first appearance, without those that scoring adds."""
    fields: dict[str, pa.Field] = {}
    for schema in schemas:
        as_json = {*json_names(schema), *json_names(pa.schema(list(fields.values())))}
        for field in schema:
            if field.name in as_json:
                fields[field.name] = json_field(field.name)
            elif field.name not in OUTCOME_SCHEMA.names:
                fields[field.name] = _wider(fields.get(field.name, field), field)
    return {name: field for name, field in fields.items() if name not in OUTCOME_SCHEMA.names}


def _wider(one: pa.Field, other: pa.Field) -> pa.Field:
    try:
        return pa.unify_schemas([pa.schema([one]), pa.schema([other])], promote_options="permissive").field(0)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return json_field(one.name)


def _conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a chunk's table with the types of all chunks."""
    return pa.table([_conformed_column(table, field) for field in schema], schema=schema)


def _conformed_column(table: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    if field.name not in table.column_names:
        return pa.nulls(len(table), field.type)
    column = table.column(field.name)
    if table.field(field.name).equals(field, check_metadata=True):
        return column
    if field.metadata:
        return _json_column(column.to_pylist())
    if (exact := _exact_column(column.to_pylist(), field.type)) is None:
        raise _Misfit(field.name)
    return exact


def _exact_column(values: list[Any], kind: pa.DataType | None = None) -> pa.Array | None:
    """Return the values as a column of this type, or the one that they have; None where that would change one."""
    try:
        column = pa.array(values, kind)
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return None
    exact = not _has_empty_struct(column.type) and all(map(_equal, column.to_pylist(), values))
    return column if exact else None


def _equal(one: object, other: object) -> bool:
    return one == other or (one != one and other != other)  # NaN


def _has_empty_struct(kind: pa.DataType) -> bool:
    """Whether there is an object without keys in it, which Parquet can't hold."""
    if pa.types.is_list(kind):
        return _has_empty_struct(kind.value_type)
    if not pa.types.is_struct(kind):
        return False
    return not kind.num_fields or any(_has_empty_struct(kind.field(number).type) for number in range(kind.num_fields))


def _json_column(values: list[Any]) -> pa.Array:
    return pa.array([None if value is None else to_json(value) for value in values], pa.string())


def _table(rows: Sequence[Row], schema: pa.Schema) -> pa.Table:
    names = json_names(schema)
    plain = [row | {name: to_json(row[name]) for name in names if row.get(name) is not None} for row in rows]
    return pa.Table.from_pylist(plain, schema=schema)


def _with_outcome(fields: list[pa.Field]) -> pa.Schema:
    return pa.schema([*fields, *OUTCOME_SCHEMA])


def _write_table(path: Path, table: pa.Table) -> None:
    pq.write_table(table, _part(path))
    _part(path).replace(path)


def _write_tables(path: Path, schema: pa.Schema, tables: Iterator[pa.Table]) -> None:
    with pq.ParquetWriter(path, schema) as writer:
        gathered: list[pa.Table] = []
        for table in tables:
            gathered.append(table)
            if sum(some.nbytes for some in gathered) >= _GROUP_BYTES:
                writer.write_table(pa.concat_tables(gathered))
                gathered.clear()
        if gathered:
            writer.write_table(pa.concat_tables(gathered))


def _part(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")

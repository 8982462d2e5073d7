"""Scored rows on disk: chunk files, then one output whose rows and values are those that went in."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_loop.errors import DataError
from reward_loop.outcome import ErrorPolicy, Outcome, Reward
from reward_loop.runs.fields import Row
from reward_loop.runs.scored import OUTCOME_SCHEMA, outcome_fields
from reward_loop.runs.sink import sink_for
from reward_loop.runs.source import open_source

OUTCOME = outcome_fields(Outcome("ok", Reward(1.0, {"acc": 1.0, "why": ["ü"]}), "", 0.5), ErrorPolicy())


def merged(directory: Path, chunks: list[list[Row]], name: str = "out.parquet", schema: pa.Schema | None = None) -> Path:
    """Write these rows (each with an outcome) as chunks, and put them together."""
    sink = sink_for(directory / name, schema)
    files = [directory / f"chunk-{number}" for number in range(len(chunks))]
    for file, rows in zip(files, chunks, strict=True):
        sink.write_chunk(file, [{**row, **OUTCOME} for row in rows])
    sink.merge(files, directory / name)
    return directory / name


def inputs_of(path: Path) -> list[Row]:
    """The rows of an output as our own reader has them, without what scoring added and without fields that are not there."""
    rows = [row for chunk in open_source(path).chunks(1000) for row in chunk.rows]
    return [
        {name: value for name, value in row.items() if name not in OUTCOME_SCHEMA.names and value is not None}
        for row in rows
        if isinstance(row, dict)
    ]


def types_of(path: Path) -> dict[str, pa.DataType]:
    return {field.name: field.type for field in pq.read_schema(path)}


# -- JSONL -----------------------------------------------------------------------------------------------------------


def test_jsonl_holds_one_object_a_line_with_the_extra_info_as_an_object(tmp_path: Path) -> None:
    path = merged(tmp_path, [[{"id": 1}, {"id": 2}], [{"id": 3, "note": "żółć 😀"}]], "out.jsonl")
    lines = path.read_text("utf-8").splitlines()
    assert [json.loads(line)["id"] for line in lines] == [1, 2, 3]
    assert json.loads(lines[2]) == {"id": 3, "note": "żółć 😀", **OUTCOME}


def test_rows_that_bore_the_name_of_an_added_field_get_the_new_value(tmp_path: Path) -> None:
    for name in ("out.jsonl", "out.parquet"):
        path = merged(tmp_path, [[{"reward": 7.0, "reward_extra_info": "mine"}]], name)
        [row] = [row for chunk in open_source(path).chunks(10) for row in chunk.rows]
        assert row == OUTCOME


# -- Parquet from an input without types -----------------------------------------------------------------------------


def test_parquet_has_the_types_of_the_values_and_of_the_added_fields(tmp_path: Path) -> None:
    row = {"n": 1, "x": 0.5, "t": "a", "b": True, "info": {"i": 1, "tags": ["a"]}}
    path = merged(tmp_path, [[row]])
    assert types_of(path) == {
        "n": pa.int64(),
        "x": pa.float64(),
        "t": pa.string(),
        "b": pa.bool_(),
        "info": pa.struct([("i", pa.int64()), ("tags", pa.list_(pa.string()))]),
        **{field.name: field.type for field in OUTCOME_SCHEMA},
    }
    assert inputs_of(path) == [row]
    assert pq.read_table(path).column("reward_extra_info").to_pylist() == ['{"acc": 1.0, "why": ["ü"]}']


def test_types_of_several_chunks_are_widened_where_that_changes_no_value(tmp_path: Path) -> None:
    chunks: list[list[Row]] = [[{"n": None, "x": 1}], [{"n": 3, "x": 2.5}], [{"x": 4, "late": "here"}]]
    path = merged(tmp_path, chunks)
    assert [types_of(path)[name] for name in ("n", "x", "late")] == [pa.int64(), pa.float64(), pa.string()]
    assert inputs_of(path) == [{"x": 1}, {"n": 3, "x": 2.5}, {"x": 4, "late": "here"}]


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([[1, "a"]], id="numbers and text"),
        pytest.param([[1, True]], id="numbers and booleans"),
        pytest.param([[1], ["a"]], id="numbers, then text in another chunk"),
        pytest.param([["a"], [{"k": 1}], [[2]]], id="text, an object and a list"),
        pytest.param([[{}, {}]], id="objects without keys"),
        pytest.param([[{"inner": [{}]}]], id="an object without keys deep inside"),
        pytest.param([[{"a": 1}, {"b": 2}]], id="objects of different keys"),
        pytest.param([[{"a": 1}], [{"a": 1, "b": 2}]], id="objects of different keys in different chunks"),
        pytest.param([[{"a": 1}], [{}]], id="objects with keys and without"),
        pytest.param([[{"a": 1}], [{"a": "x"}]], id="objects whose values differ in type"),
        pytest.param([[[1, "a"]]], id="a list of several types"),
        pytest.param([[2**70]], id="a number beyond 64 bits"),
        pytest.param([[2**53 + 1], [0.5]], id="a number that a float can't hold"),
        pytest.param([["cut off \ud83d"]], id="half a surrogate pair"),
    ],
)
def test_values_that_no_single_type_holds_become_json_text_and_are_read_back_as_they_were(
    tmp_path: Path, chunks: list[list[Any]]
) -> None:
    path = merged(tmp_path, [[{"id": 0, "v": value} for value in values] for values in chunks])
    assert types_of(path)["v"] == pa.string()
    assert types_of(path)["id"] == pa.int64()
    texts = [None if text is None else json.loads(text) for text in pq.read_table(path).column("v").to_pylist()]
    assert texts == [value for values in chunks for value in values], "any Parquet reader sees JSON"
    assert inputs_of(path) == [{"id": 0, "v": value} for values in chunks for value in values]


def test_a_misfit_in_several_fields_and_chunks_changes_nothing_else(tmp_path: Path) -> None:
    chunks: list[list[Row]] = [[{"a": {"k": 1}, "b": 2**53 + 1, "c": i} for i in range(3)], [{"a": {}, "b": 0.5, "c": 3}]]
    path = merged(tmp_path, chunks)
    assert types_of(path)["c"] == pa.int64()
    assert inputs_of(path) == [row for rows in chunks for row in rows]


def test_nan_stays_a_number(tmp_path: Path) -> None:
    path = merged(tmp_path, [[{"x": 1.5}, {"x": math.nan}]])
    assert types_of(path)["x"] == pa.float64()
    [one, other] = pq.read_table(path).column("x").to_pylist()
    assert one == 1.5
    assert math.isnan(other)


any_value = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=5,
)
any_row = st.dictionaries(st.sampled_from(["x", "y", "z"]), any_value)


@given(chunks=st.lists(st.lists(any_row, min_size=1, max_size=3), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_whatever_the_rows_hold_parquet_gives_it_back(tmp_path_factory: pytest.TempPathFactory, chunks: list[list[Row]]) -> None:
    path = merged(tmp_path_factory.mktemp("any"), chunks)
    rows = [row for rows in chunks for row in rows]
    assert inputs_of(path) == [{name: value for name, value in row.items() if value is not None} for row in rows]


# -- Parquet from an input with types --------------------------------------------------------------------------------


def test_an_input_with_types_keeps_them(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("small", pa.int8()),
            ("word", pa.dictionary(pa.int32(), pa.string())),
            ("when", pa.timestamp("us", tz="UTC")),
            ("pairs", pa.list_(pa.struct([("k", pa.large_string()), ("v", pa.float32())]))),
            ("nothing", pa.null()),
            ("raw", pa.binary()),
        ]
    )
    table = pa.table(
        {
            "small": [1, None],
            "word": ["a", "a"],
            "when": [0, 10**15],
            "pairs": [[{"k": "x", "v": 0.5}], []],
            "nothing": [None, None],
            "raw": [b"\xff", None],
        },
        schema=schema,
    )
    path = merged(tmp_path, [table.slice(0, 1).to_pylist(), table.slice(1).to_pylist()], schema=schema)
    stored = pq.read_table(path)
    assert stored.select(schema.names).to_pylist() == table.to_pylist()
    assert stored.schema.names == [*schema.names, *OUTCOME_SCHEMA.names]
    assert {name: types_of(path)[name] for name in schema.names} == dict(zip(schema.names, schema.types, strict=True))


def test_scoring_a_scored_file_again_replaces_its_rewards_and_keeps_json_fields(tmp_path: Path) -> None:
    first = merged(tmp_path, [[{"v": 1, "reward": 9.0}, {"v": "a"}]])
    rows = [row for chunk in open_source(first).chunks(10) for row in chunk.rows]
    again = merged(tmp_path, [[row for row in rows if isinstance(row, dict)]], "again.parquet", pq.read_schema(first))
    assert pq.read_table(again).to_pylist() == pq.read_table(first).to_pylist()
    assert inputs_of(again) == [{"v": 1}, {"v": "a"}]


# -- all kinds -------------------------------------------------------------------------------------------------------


def test_chunks_do_not_become_row_groups_of_their_own(tmp_path: Path) -> None:
    path = merged(tmp_path, [[{"id": number}] for number in range(50)])
    assert pq.ParquetFile(path).metadata.num_row_groups == 1
    assert [row["id"] for row in inputs_of(path)] == list(range(50))


def test_a_large_run_is_split_into_row_groups(tmp_path: Path) -> None:
    path = merged(tmp_path, [[{"t": f"{number}" * 2**20}] for number in range(10)] * 2)
    assert pq.ParquetFile(path).metadata.num_row_groups > 1


def test_an_unknown_suffix_names_the_known_ones() -> None:
    with pytest.raises(DataError, match=r"out\.csv: the output's name must end in \.parquet or \.jsonl"):
        sink_for(Path("out.csv"), None)

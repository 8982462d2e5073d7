import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_loop.errors import DataError
from reward_loop.runs.fields import FieldMap, RowError
from reward_loop.runs.source import RolloutSource, batch_columns, open_source

Writer = Callable[[Path, list[dict[str, Any]]], Path]


def write_jsonl(directory: Path, rows: list[dict[str, Any]]) -> Path:
    path = directory / "rollouts.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_gzip(directory: Path, rows: list[dict[str, Any]]) -> Path:
    path = directory / "rollouts.jsonl.gz"
    path.write_bytes(gzip.compress(write_jsonl(directory, rows).read_bytes()))
    return path


def write_parquet(directory: Path, rows: list[dict[str, Any]]) -> Path:
    path = directory / "rollouts.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=3)
    return path


def write_huggingface(directory: Path, rows: list[dict[str, Any]]) -> Path:
    datasets = pytest.importorskip("datasets", reason="the extra [datasets] is not installed")
    path = directory / "saved"
    datasets.Dataset.from_list(rows).save_to_disk(str(path))
    return path


every_format = pytest.mark.parametrize("write", [write_jsonl, write_gzip, write_parquet, write_huggingface])


def numbered(count: int) -> list[dict[str, Any]]:
    return [{"response": f"r{number}", "ids": [number] * (number % 3), "info": {"n": number}} for number in range(count)]


def rows_of(source: RolloutSource, rows_per_chunk: int = 4) -> list[Any]:
    return [row for chunk in source.chunks(rows_per_chunk) for row in chunk.rows]


@every_format
def test_every_row_comes_once_in_order_as_plain_python(tmp_path: Path, write: Writer) -> None:
    source = open_source(write(tmp_path, numbered(10)))
    assert rows_of(source) == numbered(10)
    assert (source.num_rows(), source.names()) == (10, ["response", "ids", "info"])


@every_format
def test_a_chunk_holds_the_same_rows_whatever_was_skipped(tmp_path: Path, write: Writer) -> None:
    source = open_source(write(tmp_path, numbered(11)))
    chunks = list(source.chunks(4, skip=lambda index: index == 1))
    assert [(chunk.index, chunk.first_row) for chunk in chunks] == [(0, 0), (2, 8)]
    assert chunks[0].rows == numbered(11)[0:4]
    assert chunks[1].rows == numbered(11)[8:11]


@settings(max_examples=40, deadline=None)
@given(rows=st.integers(1, 30), group=st.integers(1, 12), chunk=st.integers(1, 12), skipped=st.sets(st.integers(0, 30)))
def test_parquet_chunks_do_not_depend_on_row_groups(
    tmp_path_factory: pytest.TempPathFactory, rows: int, group: int, chunk: int, skipped: set[int]
) -> None:
    path = tmp_path_factory.mktemp("groups") / "x.parquet"
    pq.write_table(pa.table({"n": list(range(rows))}), path, row_group_size=group)
    got = {
        part.index: [row["n"] for row in part.rows if isinstance(row, dict)]
        for part in open_source(path).chunks(chunk, skip=skipped.__contains__)
    }
    whole = {index: list(range(first, min(first + chunk, rows))) for index, first in enumerate(range(0, rows, chunk))}
    assert got == {index: numbers for index, numbers in whole.items() if index not in skipped}


def test_a_skipped_chunk_of_json_lines_is_not_parsed(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"n": 0}\nbroken\n{"n": 2}\n', encoding="utf-8")
    chunks = list(open_source(path).chunks(1, skip=lambda index: index == 1))
    assert [chunk.rows for chunk in chunks] == [[{"n": 0}], [{"n": 2}]]


@pytest.mark.parametrize(
    ("line", "problem"), [(b"{broken", "not valid JSON"), (b"[1]", "not a JSON object"), (b"\xff", "not valid JSON")]
)
def test_a_broken_line_stands_in_its_place_as_an_error(tmp_path: Path, line: bytes, problem: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"n": 0}\n\n' + line + b'\n{"n": 2}')
    first, broken, last = rows_of(open_source(path))
    assert (first, last) == ({"n": 0}, {"n": 2})
    assert isinstance(broken, RowError)
    assert broken.row == 1
    assert f"line 3: {problem}" in str(broken.error)


def test_json_nested_too_deep_is_one_broken_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"n": 0}\n' + "[" * 200_000 + "\n", encoding="utf-8")
    assert isinstance(rows_of(open_source(path))[1], RowError)


@pytest.mark.parametrize("text", ['[{"n": 0}]', "a,b\n1,2\n"])
def test_a_file_whose_first_line_is_no_object_has_the_wrong_format(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=r"line 1.*one object a line"):
        open_source(path)


def test_blank_lines_are_no_rows_and_a_byte_order_mark_no_text(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"n": 0}\n\n  \n{"n": 1}\n\n')
    source = open_source(path)
    assert (rows_of(source), source.num_rows()) == ([{"n": 0}, {"n": 1}], 2)


@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet"])
def test_a_file_without_rows_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(pa.table({"response": pa.array([], pa.string())}), path)
    else:
        path.write_text("\n\n", encoding="utf-8")
    with pytest.raises(DataError, match="holds no rows"):
        open_source(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.jsonl: no such file"):
        open_source(tmp_path / "nowhere.jsonl")


def test_a_file_of_unknown_format_can_be_read_when_its_format_is_given(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path, numbered(1)).rename(tmp_path / "rollouts.txt")
    with pytest.raises(DataError, match=r"rename it to one of \.jsonl"):
        open_source(path)
    assert rows_of(open_source(path, "jsonl")) == numbered(1)


@pytest.mark.parametrize("name", ["x.parquet", "x.jsonl.gz"])
def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("hello\n" * 50, encoding="utf-8")
    with pytest.raises(DataError, match="can't be read"):
        open_source(path)


def test_a_gzip_file_that_was_cut_off_is_an_error_not_an_end(tmp_path: Path) -> None:
    path = write_gzip(tmp_path, numbered(5_000))
    path.write_bytes(path.read_bytes()[:-2_000])
    with pytest.raises(DataError, match="is it complete"):
        rows_of(open_source(path))


def test_a_directory_that_is_no_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="save_to_disk"):
        open_source(tmp_path)


def test_a_dataset_with_splits_asks_for_one(tmp_path: Path) -> None:
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}', encoding="utf-8")
    with pytest.raises(DataError, match=r"the splits train, test; give one of them, such as .*train"):
        open_source(tmp_path)


def test_without_the_datasets_library_its_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text("{}", encoding="utf-8")
    script = (
        "import sys; sys.modules['datasets'] = None\n"
        "from pathlib import Path; from reward_loop.runs.source import open_source; open_source(Path(sys.argv[1]))"
    )
    ran = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False)
    assert "ConfigError" in ran.stderr
    assert "pip install reward-loop[datasets]" in ran.stderr


@every_format
def test_a_fingerprint_stays_until_the_content_changes(tmp_path: Path, write: Writer) -> None:
    path = write(tmp_path, numbered(3))
    before = open_source(path).fingerprint()
    assert open_source(path).fingerprint() == before
    changed = next(file for file in sorted(path.rglob("*")) if file.is_file()) if path.is_dir() else path
    stat = changed.stat()
    content = bytearray(changed.read_bytes())
    source = open_source(path)
    content[-1] ^= 1
    changed.write_bytes(content)
    os.utime(changed, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert source.fingerprint() != before


@pytest.mark.parametrize("write", [write_parquet, write_huggingface])
def test_columns_limit_what_is_read_but_not_the_schema(tmp_path: Path, write: Writer) -> None:
    source = open_source(write(tmp_path, numbered(2)), columns=["response"])
    assert rows_of(source) == [{"response": "r0"}, {"response": "r1"}]
    schema = source.arrow_schema()
    assert schema is not None
    assert schema.names == ["response", "ids", "info"]


def test_json_lines_have_no_schema(tmp_path: Path) -> None:
    assert open_source(write_jsonl(tmp_path, numbered(1))).arrow_schema() is None


def test_a_batch_holds_the_columns_that_scoring_reads() -> None:
    row = {
        "question": "1+1?",
        "response": "2",
        "source": "s",
        "answer": "2",
        "uid": "a",
        "tool_extra_fields": {"turns": 2},
    }
    columns, errors = batch_columns([row], FieldMap.detect(list(row), [row]))
    assert errors == [None]
    assert {name: list(column) for name, column in columns.items()} == {
        "data_source": ["s"],
        "reward_model": [{"ground_truth": "2"}],
        "extra_info": [{}],
        "raw_prompt": [[{"role": "user", "content": "1+1?"}]],
        "solution_str": ["2"],
        "uid": ["a"],
        "tool_extra_fields": [{"turns": 2}],
    }


def test_token_ids_go_into_columns_of_their_own() -> None:
    rows: list[Any] = [{"prompt": [1, 2], "response": [3, 4], "source": "s"}] * 2
    columns, _ = batch_columns(rows, FieldMap.detect(list(rows[0]), rows))
    assert list(columns["response_ids"]) == [[3, 4], [3, 4]]
    assert list(columns["prompt_ids"]) == [[1, 2], [1, 2]]
    assert list(columns["raw_prompt"]) == [None, None]
    assert "solution_str" not in columns


def test_rows_that_can_not_be_scored_are_left_out_and_say_why() -> None:
    broken = RowError(8, DataError("line 9: not valid JSON"))
    rows: list[Any] = [{"r": "a", "d": "s"}, broken, {"r": None, "d": "s"}, {"r": [1], "d": "s"}, {"r": "b", "d": "s"}]
    columns, errors = batch_columns(rows, FieldMap("r", data_source="d"), first_row=7)
    assert list(columns["solution_str"]) == ["a", "b"]
    assert [error is None for error in errors] == [True, False, False, False, True]
    assert errors[1] is broken
    assert errors[2] is not None
    assert errors[2].row == 9
    assert "row 9: field 'r' holds nothing" in str(errors[2].error)
    assert errors[3] is not None
    assert "row 10: field 'r' holds token ids" in str(errors[3].error)

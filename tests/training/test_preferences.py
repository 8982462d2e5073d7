"""Reading preferences, and what is said of bad rows."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from reward_loop.errors import DataError
from reward_loop.training.preferences import Preference, read_preferences, write_preferences

GOOD = {"prompt": "6 * 7?", "chosen": "42", "rejected": "41"}


def jsonl(folder: Path, *rows: object) -> Path:
    path = folder / "preferences.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_json_lines_are_read_in_order_with_what_is_optional(tmp_path: Path) -> None:
    path = jsonl(tmp_path, GOOD, {**GOOD, "margin": 1, "label": 2}, {"prompt": [1, 2], "chosen": [3], "rejected": [4, 5]})
    assert read_preferences(path) == [
        Preference("6 * 7?", "42", "41"),
        Preference("6 * 7?", "42", "41", margin=1.0, label=2),
        Preference((1, 2), (3,), (4, 5)),
    ]


def test_blank_lines_are_no_rows_and_compressed_files_are_read_too(tmp_path: Path) -> None:
    path = tmp_path / "preferences.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n" + json.dumps(GOOD).encode() + b"\n\n"))
    assert read_preferences(path) == [Preference("6 * 7?", "42", "41")]


def test_parquet_is_read_with_token_ids_messages_and_empty_cells(tmp_path: Path) -> None:
    path = tmp_path / "preferences.parquet"
    turn = [{"role": "user", "content": "hi"}]
    rows = [
        {"prompt": turn, "chosen": "hello", "rejected": "go away", "margin": None},
        {"prompt": turn, "chosen": "yes", "rejected": "no", "margin": 0.5},
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)
    first, second = read_preferences(path)
    assert (first.prompt, first.chosen, first.margin, second.margin) == (tuple(turn), "hello", 0.0, 0.5)


def test_the_prompt_may_be_missing_or_be_ignored_and_fields_have_names(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"better": "a b", "worse": "a c"})
    assert read_preferences(path, chosen_field="better", rejected_field="worse") == [Preference("", "a b", "a c")]
    assert read_preferences(jsonl(tmp_path, GOOD), prompt_field=None) == [Preference("", "42", "41")]


def test_what_is_written_is_read(tmp_path: Path) -> None:
    given = [Preference("ü?", "ä", "ö", margin=0.25), Preference((1,), (2, 3), (4,), label=1)]
    assert read_preferences(write_preferences(tmp_path / "some.jsonl", given)) == given


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "p", "chosen": "a"}, "the field 'rejected' is missing; there are 'prompt', 'chosen'"),
        ({**GOOD, "chosen": ""}, "chosen must be a text, token ids or chat messages (role, content), and not empty; it is ''"),
        ({**GOOD, "chosen": 42}, "and not empty; it is 42"),
        ({**GOOD, "chosen": [1, -2]}, "and not empty; it is [1, -2]"),
        ({**GOOD, "chosen": [True]}, "and not empty; it is [True]"),
        ({**GOOD, "chosen": "41"}, "chosen and rejected are the same: '41'"),
        ({**GOOD, "rejected": [4]}, "chosen is text, rejected token ids: both must be of one kind"),
        ({**GOOD, "prompt": [1]}, "the prompt is token ids, the answers are text"),
        ({**GOOD, "margin": "big"}, "margin must be a finite number; it is 'big'"),
        ({**GOOD, "margin": float("nan")}, "margin must be a finite number; it is nan"),
        ({**GOOD, "label": -1}, "label must be a number of a label, from 0; it is -1"),
        ([1], "it is [1], not an object with the fields chosen and rejected"),
    ],
)
def test_a_bad_row_is_named_with_its_line_its_value_and_what_is_wrong(tmp_path: Path, row: Any, message: str) -> None:
    path = jsonl(tmp_path, GOOD, row)
    with pytest.raises(DataError) as error:
        read_preferences(path)
    assert f"{path}: 1 of 2 rows are no preferences:\n  line 2: " in str(error.value)
    assert message in str(error.value)


def test_of_many_bad_rows_the_first_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "preferences.jsonl"
    path.write_text(json.dumps(GOOD) + "\n" + "{broken\n" * 7)
    with pytest.raises(DataError) as error:
        read_preferences(path)
    assert "7 of 8 rows" in str(error.value)
    assert str(error.value).count("it is no JSON") == 5
    assert str(error.value).endswith("… and 2 more")


def test_files_that_can_not_be_read_say_why(tmp_path: Path) -> None:
    for name, content, message in [
        ("empty.jsonl", b"\n", "holds no rows"),
        ("data.csv", b"a,b\n", "is neither JSON Lines"),
        ("data.parquet", b"nonsense", "is no Parquet file"),
        ("data.jsonl.gz", b"nonsense", "can't be read"),
        ("cut.jsonl.gz", gzip.compress(b'{"a": 1}' * 99)[:-9], "can't be read"),
    ]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=message):
            read_preferences(tmp_path / name)
    with pytest.raises(DataError, match="No such file"):
        read_preferences(tmp_path / "nothing.jsonl")

"""`reward-loop score`: every kind of input and output, bad rows, bad commands, and what a user sees."""

from __future__ import annotations

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

from tests.cli.conftest import Command
from tests.fakes import tiny_tokenizer

Row = dict[str, Any]
Read = Callable[[Path], list[Row]]
Write = Callable[..., Path]
Refused = Callable[..., str]

ROOT = Path(__file__).resolve().parents[2]
ADDED = ["reward", "token_rewards", "reward_status", "reward_message", "reward_seconds", "reward_extra_info"]


def gsm8k(row: int, **fields: Any) -> Row:
    """A rollout that is right but for every third."""
    answer = row if row % 3 else row + 1
    return {
        "id": row,
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": f"What is {row - 1} + 1?"}],
        "response": f"Größe: ja! 😀 #### {answer}",
        "reward_model": {"style": "rule", "ground_truth": str(row)},
        **fields,
    }


def ids_of(text: str) -> list[int]:
    return list(tiny_tokenizer()(text)["input_ids"])


def function_file(directory: Path, code: str, name: str = "reward.py") -> str:
    (directory / name).write_text(code)
    return f"custom_reward_function.path={directory / name}"


# -- kinds of input and output ---------------------------------------------------------------------------------------


def as_text(row: Row) -> Row:
    return row


def as_chat(row: Row) -> Row:
    return {**row, "response": [{"role": "assistant", "content": row["response"]}]}


def as_ids(row: Row) -> Row:
    return {**row, "response": ids_of(row["response"])}


def jsonl(directory: Path, rows: list[Row]) -> Path:
    path = directory / "in.jsonl"
    path.write_text("".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows), encoding="utf-8")
    return path


def gzipped(directory: Path, rows: list[Row]) -> Path:
    subprocess.run(["gzip", str(jsonl(directory, rows))], check=True)
    return directory / "in.jsonl.gz"


def parquet(directory: Path, rows: list[Row]) -> Path:
    pq.write_table(pa.Table.from_pylist(rows), directory / "in.parquet", row_group_size=300)
    return directory / "in.parquet"


def huggingface(directory: Path, rows: list[Row]) -> Path:
    datasets = pytest.importorskip("datasets", reason="the extra [datasets] is not installed")
    datasets.Dataset.from_list(rows).save_to_disk(str(directory / "saved"))
    return directory / "saved"


@pytest.mark.parametrize("output", ["out.jsonl", "out.parquet"])
@pytest.mark.parametrize("shape", [as_text, as_chat, as_ids])
@pytest.mark.parametrize("write", [jsonl, gzipped, parquet, huggingface])
def test_every_kind_of_input_gives_every_kind_of_output(
    command: Command,
    read: Read,
    tokenizer_path: str,
    tmp_path: Path,
    write: Callable[[Path, list[Row]], Path],
    shape: Callable[[Row], Row],
    output: str,
) -> None:
    rows = [shape(gsm8k(row)) for row in range(1, 601)]
    source = write(tmp_path, rows)
    tokenizer = [f"actor_rollout_ref.model.path={tokenizer_path}"] if shape is as_ids else []
    ended = command("score", source, "-o", tmp_path / output, *tokenizer)
    assert ended.code == 0, ended.errors
    scored = read(tmp_path / output)
    assert [list(row) for row in scored] == [[*rows[0], *ADDED]] * len(rows)
    assert [{name: row[name] for name in rows[0]} for row in scored] == rows
    for row in scored:
        assert row["reward"] == float(row["id"] % 3 != 0)
        assert row["reward_extra_info"] == {"acc": row["reward"]}
        assert (row["reward_status"], row["reward_message"], row["token_rewards"]) == ("ok", "", None)
        assert row["reward_seconds"] > 0
    summary = json.loads((tmp_path / f"{output}.summary.json").read_text("utf-8"))
    assert summary["statuses"] == {"ok": 600}
    assert summary["sources"]["openai/gsm8k"]["mean"] == pytest.approx(2 / 3)
    assert (summary["input"], summary["output"]) == (str(source), str(tmp_path / output))


def test_the_output_stands_beside_the_input_unless_it_is_named(command: Command, read: Read, write_jsonl: Write) -> None:
    path = write_jsonl([gsm8k(1)])
    assert command("score", path).code == 0
    assert [row["reward"] for row in read(path.with_name("in.jsonl.scored.parquet"))] == [1.0]


def test_parquet_holds_the_extra_info_as_json_for_any_reader(command: Command, write_jsonl: Write, tmp_path: Path) -> None:
    command("score", write_jsonl([gsm8k(1)]), "-o", tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column("reward_extra_info").to_pylist() == ['{"acc": 1.0}']
    assert table.schema.field("reward_model").type == pa.struct([("style", pa.string()), ("ground_truth", pa.string())])


def test_fields_are_named_by_flags(command: Command, read: Read, write_jsonl: Write, tmp_path: Path) -> None:
    code = """
def compute_score(data_source, solution_str, ground_truth, extra_info, raw_prompt):
    return {"score": 1.0, "seen": [data_source, solution_str, ground_truth, extra_info["k"], raw_prompt[0]["content"]]}
"""
    row = {"a": {"b": "answer"}, "c": {"d": {"e": "truth"}}, "f": "source", "g": {"k": "info"}, "h": "asked", "response": "no"}
    flags = ["--response-field=a.b", "--ground-truth-field=c.d.e", "--data-source-field=f", "--extra-info-field=g"]
    path, output = write_jsonl([row]), tmp_path / "out.jsonl"
    ended = command("score", path, "-o", output, *flags, "--prompt-field=h", function_file(tmp_path, code))
    assert ended.code == 0, ended.errors
    assert read(output)[0]["reward_extra_info"]["seen"] == ["source", "answer", "truth", "info", "asked"]


def test_one_data_source_for_all_rows(command: Command, read: Read, write_jsonl: Write, tmp_path: Path) -> None:
    path = write_jsonl([{"response": "#### 1", "answer": "1"}, {"response": "#### 2", "answer": "1"}])
    assert command("score", path, "-o", tmp_path / "out.jsonl", "--data-source", "openai/gsm8k").code == 0
    assert [row["reward"] for row in read(tmp_path / "out.jsonl")] == [1.0, 0.0]
    assert "openai/gsm8k" in json.loads((tmp_path / "out.jsonl.summary.json").read_text("utf-8"))["sources"]


def test_a_file_of_another_name_is_read_as_what_its_flag_says(
    command: Command, read: Read, write_jsonl: Write, tmp_path: Path
) -> None:
    path = write_jsonl([gsm8k(1)], "rollouts.txt")
    assert command("score", path, "-o", tmp_path / "out.jsonl", "--format", "jsonl").code == 0
    assert len(read(tmp_path / "out.jsonl")) == 1


# -- what functions and managers give --------------------------------------------------------------------------------


def test_per_token_rewards_have_a_column_of_their_own(
    command: Command, read: Read, write_jsonl: Write, tokenizer_path: str, tmp_path: Path
) -> None:
    code = "def compute_score(solution_str, response_ids):\n    return [0.5] * len(response_ids)\n"
    rows = [{"data_source": "x", "response": ids_of(text)} for text in ("one", "and two")]
    settings = [f"actor_rollout_ref.model.path={tokenizer_path}", function_file(tmp_path, code)]
    for name in ("out.jsonl", "out.parquet"):
        assert command("score", write_jsonl(rows), "-o", tmp_path / name, *settings).code == 0
        scored = read(tmp_path / name)
        assert [row["token_rewards"] for row in scored] == [[0.5] * len(row["response"]) for row in rows]
        assert [row["reward"] for row in scored] == [0.5 * len(row["response"]) for row in rows]


def test_extra_info_of_any_kind_is_strict_json(command: Command, write_jsonl: Write, tmp_path: Path) -> None:
    code = """
import numpy, torch
def compute_score(solution_str):
    tensor = torch.tensor([1.0, float("inf")])
    return {"score": numpy.float32(0.5), "nan": float("nan"), "array": numpy.arange(2), "tensor": tensor,
            "keys": {(1, 2): 3}, "object": object, "ü": "\\ud83d"}
"""
    rows = [{"data_source": "x", "response": "a"}]
    for name in ("out.jsonl", "out.parquet"):
        assert command("score", write_jsonl(rows), "-o", tmp_path / name, function_file(tmp_path, code)).code == 0
    [text] = pq.read_table(tmp_path / "out.parquet").column("reward_extra_info").to_pylist()
    extra = json.loads(text, parse_constant=pytest.fail)
    assert extra == json.loads((tmp_path / "out.jsonl").read_text("utf-8"))["reward_extra_info"]
    assert extra == {
        "score": 0.5,
        "nan": None,
        "array": [0, 1],
        "tensor": [1.0, None],
        "keys": {"(1, 2)": 3},
        "object": "<class 'object'>",
        "ü": "\ud83d",
    }


def test_rows_of_a_group_are_scored_together_across_a_whole_file(
    command: Command, read: Read, write_jsonl: Write, tmp_path: Path
) -> None:
    code = """
def compute_score(solution_strs):
    return [{"score": float(len(text) == max(map(len, solution_strs))), "of": len(solution_strs)} for text in solution_strs]
"""
    rows = [{"data_source": "x", "response": "y" * (row % 7 + 1), "uid": f"prompt {row // 7}"} for row in range(1400)]
    settings = ["reward_model.reward_manager=group", "actor_rollout_ref.rollout.n=7", function_file(tmp_path, code)]
    assert command("score", write_jsonl(rows), "-o", tmp_path / "out.parquet", *settings).code == 0
    scored = read(tmp_path / "out.parquet")
    assert [row["reward"] for row in scored] == [float(row % 7 == 6) for row in range(1400)]
    assert {row["reward_extra_info"]["of"] for row in scored} == {7}


def test_groups_whose_size_was_not_told_are_not_torn_apart_silently(refused: Refused, write_jsonl: Write, tmp_path: Path) -> None:
    code = "def compute_score(solution_strs):\n    return [0.0] * len(solution_strs)\n"
    rows = [{"data_source": "x", "response": "y", "uid": row // 7} for row in range(1400)]
    settings = ["reward_model.reward_manager=group", function_file(tmp_path, code)]
    message = refused("score", write_jsonl(rows), "-o", tmp_path / "out.jsonl", *settings)
    assert "row 512: its group 73 began in the chunk" in message
    assert "actor_rollout_ref.rollout.n" in message


def test_a_manager_of_the_users_own_is_named_by_its_file(
    command: Command, read: Read, write_jsonl: Write, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text("""
from dataclasses import replace
from reward_loop import RewardManagerBase
class Doubling(RewardManagerBase):
    def shape(self, sample, reward):
        return replace(reward, value=2 * reward.value)
""")
    manager = f"reward_model.reward_manager={{source: importlib, module: {{path: {tmp_path / 'mine.py'}}}, name: Doubling}}"
    assert command("score", write_jsonl([gsm8k(1)]), "-o", tmp_path / "out.jsonl", manager).code == 0
    assert read(tmp_path / "out.jsonl")[0]["reward"] == 2.0


def test_a_config_file_and_settings_on_top_of_it(command: Command, read: Read, write_jsonl: Write, tmp_path: Path) -> None:
    code = "def compute_score(solution_str, bonus, malus):\n    return bonus - malus\n"
    (tmp_path / "run.yaml").write_text("custom_reward_function: {reward_kwargs: {bonus: 1, malus: 1}}\n")
    settings = ["-c", tmp_path / "run.yaml", function_file(tmp_path, code), "custom_reward_function.reward_kwargs.bonus=5"]
    assert command("score", write_jsonl([gsm8k(1)]), "-o", tmp_path / "out.jsonl", *settings).code == 0
    assert read(tmp_path / "out.jsonl")[0]["reward"] == 4.0


# -- bad rows --------------------------------------------------------------------------------------------------------

BAD_ROWS: list[Row | str] = [
    gsm8k(1),
    '{"id": 2, "response": ',
    '["not", "an object"]',
    {"id": 4, "data_source": "openai/gsm8k"},
    gsm8k(5, response=5),
    gsm8k(6, data_source=None),
    gsm8k(7, extra_info="text"),
    gsm8k(8, data_source="nobody/knows"),
    gsm8k(9, response=""),
    gsm8k(10),
]
REASONS = {
    1: "DataError: {input}, line 2: not valid JSON",
    2: "DataError: {input}, line 3: not a JSON object",
    3: "DataError: row 3: field 'response' holds nothing",
    4: "DataError: row 4: field 'response' holds int 5",
    5: "DataError: row 5: field 'data_source' holds nothing",
    6: "DataError: row 6: field 'extra_info' holds str 'text'",
    7: "DataError: no rule for data_source 'nobody/knows'",
}


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_a_bad_row_ends_as_an_error_in_its_place_and_the_others_are_scored(
    command: Command, read: Read, write_jsonl: Write, tmp_path: Path, name: str
) -> None:
    path = write_jsonl(BAD_ROWS)
    ended = command("score", path, "-o", tmp_path / name)
    assert ended.code == 1
    scored = read(tmp_path / name)
    statuses = ["ok", *["error"] * 7, "unscorable", "ok"]
    assert [row["reward_status"] for row in scored] == statuses
    assert [row["reward"] for row in scored] == [1.0, *[None] * 8, 1.0]
    for row, reason in REASONS.items():
        assert scored[row]["reward_message"].startswith(reason.format(input=path))
    assert "7 of 10 samples failed; the first is row 1: DataError" in ended.errors
    assert f"reward-loop report {tmp_path / name}" in ended.errors
    assert "Traceback" not in ended.errors


@pytest.mark.parametrize(("on_error", "reward"), [("mask", None), ("{value: -1}", -1.0)])
def test_with_a_policy_for_failures_they_are_no_failure_of_the_command(
    command: Command, read: Read, write_jsonl: Write, tmp_path: Path, on_error: str, reward: float | None
) -> None:
    ended = command("score", write_jsonl(BAD_ROWS), "-o", tmp_path / "out.jsonl", f"reward_model.on_error={on_error}")
    assert ended.code == 0
    scored = read(tmp_path / "out.jsonl")
    assert [row["reward"] for row in scored] == [1.0, *[reward] * 7, None, 1.0]
    assert [row["reward_status"] for row in scored].count("error") == 7
    assert "7 of 10 samples failed" in ended.errors


# -- wrong commands --------------------------------------------------------------------------------------------------


def test_what_is_wrong_with_the_output_is_said(refused: Refused, write_jsonl: Write, tmp_path: Path) -> None:
    path = write_jsonl([gsm8k(1)])
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "done.jsonl").write_text("precious")
    assert "must end in .parquet or .jsonl" in refused("score", path, "-o", tmp_path / "out.csv")
    assert "is a directory" in refused("score", path, "-o", tmp_path / "folder.jsonl", "--overwrite")
    assert "is the input itself" in refused("score", path, "-o", path, "--overwrite")
    assert "is there already: take another name, or score anew with --overwrite" in refused(
        "score", path, "-o", tmp_path / "done.jsonl"
    )
    below_a_file = refused("score", path, "-o", path / "out.jsonl")
    assert str(path / "out.jsonl.partial") in below_a_file
    assert "Not a directory" in below_a_file
    assert path.read_text().startswith('{"id"')
    assert (tmp_path / "done.jsonl").read_text() == "precious"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_cannot_be_written_is_named(refused: Refused, write_jsonl: Write, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    message = refused("score", write_jsonl([gsm8k(1)]), "-o", tmp_path / "locked" / "out.jsonl")
    assert message.startswith(f"{tmp_path / 'locked'}")
    assert "Permission denied" in message


def test_an_output_without_its_flag_is_recognised(refused: Refused, write_jsonl: Write) -> None:
    assert refused("score", write_jsonl([gsm8k(1)]), "out.parquet") == (
        "'out.parquet' is no KEY=VALUE; an output is given with -o FILE"
    )


def test_what_is_wrong_with_the_settings_is_said(refused: Refused, write_jsonl: Write, tmp_path: Path) -> None:
    path, output = write_jsonl([gsm8k(1)]), tmp_path / "out.jsonl"

    def wrong(*words: object) -> str:
        return refused("score", path, "-o", output, *words)

    assert "reward_model.timeout_ms=1 (override): unknown key; did you mean" in wrong("reward_model.timeout_ms=1")
    assert "no-such.yaml: can't be read" in wrong("-c", "no-such.yaml")
    assert "no-such.py: there is no such file" in wrong("custom_reward_function.path=no-such.py")
    assert "syntax error at" in wrong(function_file(tmp_path, "def f(:\n", "syntax.py"))
    assert "raised ValueError: [red]boo" in wrong(function_file(tmp_path, "raise ValueError('[red]boo')\n", "raises.py"))
    assert "has no 'compute_score'" in wrong(function_file(tmp_path, "x = 1\n", "empty.py"))
    assert "unknown reward manager 'dap', did you mean 'dapo'?" in wrong("reward_model.reward_manager=dap")
    assert not output.with_name("out.jsonl.partial").exists()


def test_what_is_wrong_with_the_input_is_said(refused: Refused, command: Command, write_jsonl: Write, tmp_path: Path) -> None:
    assert "no such file or directory" in refused("score", tmp_path / "none.jsonl")
    assert "holds no rows" in refused("score", write_jsonl([], "empty.jsonl"))
    assert "can't be read" in refused("score", write_jsonl(["no parquet"], "text.parquet"))
    assert "--response-field=x: the input has no such field" in refused("score", write_jsonl([gsm8k(1)]), "--response-field=x")
    message = refused("score", write_jsonl([{"a": 1}], "other.jsonl"))
    assert "no field holds the response" in message
    assert "fields are: a" in message
    ids = write_jsonl([{"data_source": "openai/gsm8k", "response": [1, 2]}], "ids.jsonl")
    assert "actor_rollout_ref.model.path" in refused("score", ids)
    usage = command("score", write_jsonl([gsm8k(1)]), "--format", "xml")
    assert usage.code == 2
    assert "'xml' is none of jsonl, parquet, huggingface" in usage.errors


def test_the_same_command_twice_asks_before_it_replaces(command: Command, refused: Refused, write_jsonl: Write) -> None:
    path = write_jsonl([gsm8k(1)])
    assert command("score", path).code == 0
    assert "is there already" in refused("score", path)
    assert command("score", path, "--overwrite").code == 0


def test_rewards_that_the_input_has_already_are_not_replaced_without_a_word(
    command: Command, read: Read, write_jsonl: Write, tmp_path: Path
) -> None:
    ended = command("score", write_jsonl([gsm8k(1, reward=0.3)]), "-o", tmp_path / "out.jsonl")
    assert ended.code == 0
    assert f"the input's own reward will be replaced in {tmp_path / 'out.jsonl'}" in ended.errors
    assert read(tmp_path / "out.jsonl")[0]["reward"] == 1.0


# -- what a user sees ------------------------------------------------------------------------------------------------


def test_off_a_terminal_a_short_run_prints_its_result_and_nothing_else(
    command: Command, write_jsonl: Write, tmp_path: Path
) -> None:
    rows = [gsm8k(row) for row in range(1, 7)] + [gsm8k(7, data_source="math", response="[x]")]
    ended = command("score", write_jsonl(rows), "-o", tmp_path / "out.jsonl")
    assert ended.output == ""
    [header, first, second, done] = ended.errors.splitlines()
    assert header.split() == ["data", "source", "rows", "mean", "reward", "ok", "error", "timeout", "unscorable"]
    assert first.split() == ["openai/gsm8k", "6", "0.6667", "6", "0", "0", "0"]
    assert second.split() == ["math", "1", "-1.0000", "1", "0", "0", "0"]
    assert done.startswith("7 rows in ")
    assert done.endswith(f" -> {tmp_path / 'out.jsonl'}")


def test_long_names_of_sources_fold_and_numbers_stay_whole_in_80_columns(
    command: Command, write_jsonl: Write, tmp_path: Path
) -> None:
    rows = [gsm8k(1, data_source=f"DigitalLearningGmbH/MATH-lighteval/[{part}]") for part in range(30)]
    lines = command("score", write_jsonl(rows), "-o", tmp_path / "out.jsonl").errors.splitlines()
    end = lines.index("and 10 more data sources, in the summary")
    assert max(map(len, lines[:end])) <= 80
    shown = [line.split() for line in lines[:end] if line.startswith("Digital")]
    assert [numbers for _, *numbers in shown] == [["1", "-", "0", "1", "0", "0"]] * 20
    assert sum("[" in line for line in lines[:end]) == 20, "names are text, not markup"


@pytest.mark.parametrize("name", ["score", "report", "rescore", "config show"])
def test_every_command_has_help(command: Command, name: str) -> None:
    ended = command(*name.split(), "--help")
    assert ended.code == 0
    assert f"Usage: reward-loop {name}" in " ".join(ended.output.split())


def test_help_says_what_the_exit_codes_mean(command: Command) -> None:
    assert "130 interrupted" in " ".join(command("--help").output.split())


# -- size ------------------------------------------------------------------------------------------------------------


def test_memory_does_not_grow_with_the_file(write_jsonl: Write, tmp_path: Path) -> None:
    def peak_mb(rows: int) -> float:
        path = tmp_path / f"{rows}.jsonl"
        with path.open("w") as file:
            file.writelines(f"{json.dumps(gsm8k(row, thought='Let me think. ' * 600))}\n" for row in range(rows))
        code = (
            "import resource, sys\nfrom reward_loop.cli.main import main\n"
            "try: main()\nfinally: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        words = ["score", str(path), "-o", str(path.with_suffix(".parquet"))]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        ended = subprocess.run([sys.executable, "-c", code, *words], env=environment, check=True, capture_output=True, text=True)
        assert f"{rows} rows in" in ended.stderr
        return int(ended.stdout) / (1024 if sys.platform == "linux" else 1024**2)

    small, large = peak_mb(2_000), peak_mb(20_000)  # 17 and 170 MB of text
    assert large < 1.25 * small

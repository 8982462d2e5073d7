"""The directory of a run: what is written, and what a resumption cuts off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reward_loop.errors import ConfigError, DataError, TrainingError
from reward_loop.rinker.loops.config import LoopConfig
from reward_loop.rinker.loops.journal import Journal
from reward_loop.rinker.loops.observer import CheckpointRecord
from reward_loop.rinker.loops.run_log import RunLog, read_checkpoints
from reward_loop.rinker.rl.config import RLConfig


def config(path: Path, **settings: Any) -> LoopConfig:
    return LoopConfig.model_validate({"log_path": path, "model": {"base_model": "m"}, **settings})


def steps(path: Path) -> list[int]:
    return [line["step"] for line in Journal(path / "metrics.jsonl").read()]


def test_steps_and_checkpoints_are_lines(tmp_path: Path) -> None:
    log = RunLog("sl", config(tmp_path))
    log.step(0, {"loss": 0.5}, [[0, 1, 0, 1]])
    saved = CheckpointRecord("000001", 1, "tinker://a/weights/000001", None, ((0, 3),), ((1, 0),))
    log.saved(saved)
    log.close()
    [line] = Journal(tmp_path / "metrics.jsonl").read()
    assert (line["step"], line["loss"]) == (0, 0.5)
    assert Journal(tmp_path / "groups.jsonl").read() == [{"step": 0, "groups": [[0, 1, 0, 1]]}]
    assert read_checkpoints(tmp_path) == [saved]


def test_a_resumed_run_forgets_steps_behind_its_checkpoint(tmp_path: Path) -> None:
    log = RunLog("rl", config(tmp_path))
    for step in range(5):
        log.step(step, {"loss": 1.0}, [])
        if step == 2:
            log.saved(CheckpointRecord("000003", 3, "tinker://a/weights/000003"))
    resumed = RunLog("rl", config(tmp_path))
    assert (resumed.first_step, steps(tmp_path)) == (3, [0, 1, 2])
    resumed.step(3, {"loss": 2.0})
    assert steps(tmp_path) == [0, 1, 2, 3]


def test_without_a_checkpoint_a_run_begins_anew(tmp_path: Path) -> None:
    RunLog("rl", config(tmp_path)).step(0, {"loss": 1.0})
    assert RunLog("rl", config(tmp_path)).first_step == 0
    assert steps(tmp_path) == []


def test_a_line_that_was_cut_off_is_no_line(tmp_path: Path) -> None:
    log = RunLog("rl", config(tmp_path))
    log.saved(CheckpointRecord("000001", 1, "tinker://a/weights/000001"))
    with (tmp_path / "checkpoints.jsonl").open("a") as file:
        file.write('{"name": "0000')
    assert RunLog("rl", config(tmp_path)).first_step == 1
    assert [one.name for one in read_checkpoints(tmp_path)] == ["000001"]


def test_what_is_left_of_a_line_does_not_swallow_the_next(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.jsonl"
    path.write_bytes('{"name": "1"}\n{"name": "ü'.encode()[:-1])
    journal = Journal(path)
    assert journal.read() == [{"name": "1"}]
    journal.append({"name": "3"})
    journal.append({"name": "4"})
    assert [line["name"] for line in Journal(path).read()] == ["1", "3", "4"]


def test_only_the_end_of_a_line_ends_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.jsonl")
    line = {"said": "a\u2028b\u0085c\x1cd\re"}
    journal.append(line)
    journal.keep(lambda _: True)
    assert journal.read() == [line]


def test_a_line_that_is_none_is_an_error_that_names_it(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "metrics.jsonl")
    journal.path.write_text('{"step": 0}\nnot json\n')
    with pytest.raises(DataError, match=r"metrics\.jsonl, line 2: no JSON"):
        journal.read()
    journal.path.write_text("[1]\n")
    with pytest.raises(DataError, match=r"line 1: \[1\] is no object"):
        journal.read()


def test_a_number_that_is_none_ends_the_run_before_it_is_written(tmp_path: Path) -> None:
    log = RunLog("sl", config(tmp_path))
    with pytest.raises(TrainingError, match=r"loss is nan in step 7; lower adam\.learning_rate"):
        log.step(7, {"loss": float("nan")})
    assert steps(tmp_path) == []


def test_a_directory_of_another_run_is_refused_but_it_may_be_made_longer(tmp_path: Path) -> None:
    RunLog("sl", config(tmp_path))
    RunLog("sl", config(tmp_path, max_steps=3, save_every=1, epochs=2))
    with pytest.raises(ConfigError, match="holds a run whose seed was another"):
        RunLog("sl", config(tmp_path, seed=1))
    with pytest.raises(ConfigError, match="holds a run whose kind was another"):
        RunLog("rm", config(tmp_path))
    assert json.loads((tmp_path / "config.json").read_text())["kind"] == "sl"


@pytest.mark.parametrize(
    "changed",
    [{"failures": {"env_timeout_s": 9.0}}, {"max_rollouts_in_flight": 2}, {"evaluation": {"samples": 2}}, {"post_kl": True}],
)
def test_what_changes_nothing_of_what_is_trained_may_be_another_when_a_run_goes_on(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    base = {"log_path": tmp_path, "model": {"base_model": "m"}, "data": {"builder": "pkg://unused"}}
    RunLog("rl", RLConfig.model_validate(base))
    RunLog("rl", RLConfig.model_validate({**base, **changed}))


@pytest.mark.parametrize("torn", ["", '{"kind": "sl"', "[]"])
def test_a_configuration_that_can_not_be_read_is_refused_with_what_to_do(tmp_path: Path, torn: str) -> None:
    (tmp_path / "config.json").write_text(torn)
    with pytest.raises(ConfigError, match=r"config\.json holds no settings of a run.*; remove it"):
        RunLog("sl", config(tmp_path))


def test_the_configuration_is_never_half_written(tmp_path: Path) -> None:
    RunLog("sl", config(tmp_path))
    before = (tmp_path / "config.json").open()  # what a reader has open stays whole: the file is replaced, not cut
    RunLog("sl", config(tmp_path, max_steps=3))
    with before:
        assert json.load(before)["max_steps"] is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json"]


def test_metrics_go_to_loggers_too(tmp_path: Path) -> None:
    also = {"backend": "jsonl", "options": {"path": str(tmp_path / "also.jsonl")}}
    log = RunLog("sl", config(tmp_path / "run", loggers=[also]))
    log.step(0, {"loss": 0.5})
    log.close()
    [line] = Journal(tmp_path / "also.jsonl").read()
    assert (line["step"], line["loss"]) == (0, 0.5)
    with pytest.raises(ConfigError, match="has no option colour"):
        RunLog("sl", config(tmp_path / "other", loggers=[{"backend": "jsonl", "options": {"colour": "red"}}]))


def test_a_directory_that_can_not_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="give a directory that can be written to"):
        RunLog("sl", config(tmp_path / "file" / "run"))

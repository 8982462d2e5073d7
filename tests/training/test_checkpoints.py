"""Checkpoints: whole or not there, loadable, and enough to go on as if nothing had happened."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from torch import nn

from reward_loop.errors import TrainingError
from reward_loop.sync.training_mode import RewardModelTrainingMode
from reward_loop.training.checkpoints import Checkpoints
from reward_loop.training.reward_model import load_reward_model
from reward_loop.training.scores import score_rows
from reward_loop.training.settings import TrainingSettings
from reward_loop.training.trainer import Step, Training, train_reward_model
from reward_loop.training.training_modes import trained_by
from tests.training.interrupted import SETTINGS
from tests.training.models import pairs, tiny_model

ROWS = [pair.chosen for pair in pairs(5)]
FULL, LORA = RewardModelTrainingMode.FULL, RewardModelTrainingMode.LORA


class Interrupted(Exception):
    """What a test stops a training by."""


def built(mode: RewardModelTrainingMode, **more: Any) -> nn.Module:
    return trained_by(tiny_model(attention_dropout=0.2, **more), mode)


def trained(model: nn.Module, checkpoints: Path | None, *, settings: TrainingSettings = SETTINGS, **more: Any) -> Training:
    return train_reward_model(model, pairs(30), settings, held_out=pairs(9, seed=1), checkpoints=checkpoints, **more)


def stop_after(number: int) -> Callable[[Step], None]:
    def stop(step: Step) -> None:
        if step.number == number:
            raise Interrupted

    return stop


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("mode", RewardModelTrainingMode)
def test_a_training_that_was_stopped_goes_on_to_the_same_weights(tmp_path: Path, mode: RewardModelTrainingMode) -> None:
    whole, second = built(mode), built(mode)
    uninterrupted = trained(whole, None)
    with pytest.raises(Interrupted):
        trained(built(mode), tmp_path, on_step=stop_after(5))
    resumed = trained(second, tmp_path)
    assert all(torch.equal(value, whole.state_dict()[name]) for name, value in second.state_dict().items())
    assert resumed.steps == uninterrupted.steps
    assert resumed.held_out == uninterrupted.held_out


def test_a_training_that_was_killed_goes_on_to_the_same_weights(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.training.interrupted", str(tmp_path), "full", "8"]
    root = Path(__file__).resolve().parents[2]
    assert subprocess.run(command, cwd=root, check=False, timeout=120).returncode == -9
    assert names(tmp_path) == ["step-00000003", "step-00000006"]
    whole, second = built(FULL), built(FULL)
    trained(whole, None)
    trained(second, tmp_path)
    assert all(torch.equal(value, whole.state_dict()[name]) for name, value in second.state_dict().items())


def test_full_precision_survives_a_resumption(tmp_path: Path) -> None:
    settings = replace(SETTINGS, learning_rate=1e-4)
    whole, second = built(FULL).bfloat16(), built(FULL).bfloat16()
    trained(whole, None, settings=settings)
    with pytest.raises(Interrupted):
        trained(built(FULL).bfloat16(), tmp_path, settings=settings, on_step=stop_after(5))
    trained(second, tmp_path, settings=settings)
    assert all(torch.equal(value, whole.state_dict()[name]) for name, value in second.state_dict().items())


def test_what_was_begun_by_a_process_that_died_does_not_count_and_goes(tmp_path: Path) -> None:
    (tmp_path / ".unfinished-abc").mkdir(parents=True)
    (tmp_path / ".unfinished-abc" / "model.safetensors").write_bytes(b"half")
    trained(built(FULL), tmp_path)
    assert names(tmp_path) == ["step-00000006", "step-00000009"]


def test_the_newest_stay_and_load_as_models(tmp_path: Path) -> None:
    model = built(FULL)
    trained(model, tmp_path / "full", settings=replace(SETTINGS, keep_checkpoints=1))
    assert names(tmp_path / "full") == ["step-00000009"]
    loaded = load_reward_model(tmp_path / "full" / "step-00000009")
    torch.testing.assert_close(score_rows(loaded, ROWS), score_rows(model, ROWS))
    adapted = built(LORA)
    trained(adapted, tmp_path / "lora")
    base: Any = tiny_model(attention_dropout=0.2)
    peft: nn.Module = PeftModel.from_pretrained(base, str(tmp_path / "lora" / "step-00000009"))
    torch.testing.assert_close(score_rows(peft, ROWS), score_rows(adapted, ROWS))


def test_a_finished_training_is_not_done_again(tmp_path: Path) -> None:
    first = trained(built(FULL), tmp_path)
    told: list[Step] = []
    again = trained(built(FULL), tmp_path, on_step=told.append)
    assert told == []
    assert (again.steps, again.held_out) == (first.steps, first.held_out)


def test_a_checkpoint_of_another_training_is_refused_by_what_differs(tmp_path: Path) -> None:
    trained(built(FULL), tmp_path)
    with pytest.raises(TrainingError, match=r"is of another training: learning_rate was 0\.01 and is 0\.1"):
        trained(built(FULL), tmp_path, settings=replace(SETTINGS, learning_rate=0.1))
    with pytest.raises(TrainingError, match="the model's digest was"):
        trained(built(LORA), tmp_path)
    with pytest.raises(TrainingError, match="the pairs' digest was"):
        train_reward_model(built(FULL), pairs(30, margin=0.5), SETTINGS, checkpoints=tmp_path)


def test_adapters_go_on_only_with_the_body_that_they_were_trained_on(tmp_path: Path) -> None:
    trained(built(LORA), tmp_path)
    with pytest.raises(TrainingError, match="the model's digest was"):
        trained(built(LORA, seed=1), tmp_path)


def test_what_has_no_effect_on_the_weights_may_change(tmp_path: Path) -> None:
    trained(built(FULL), tmp_path)
    trained(built(FULL), tmp_path, settings=replace(SETTINGS, checkpoint_every=1, evaluate_every=None))


def test_without_resume_it_begins_anew(tmp_path: Path) -> None:
    trained(built(FULL), tmp_path)
    told: list[Step] = []
    trained(built(FULL), tmp_path, settings=replace(SETTINGS, learning_rate=0.1), resume=False, on_step=told.append)
    assert len(told) == 9
    trained(built(FULL), tmp_path, settings=replace(SETTINGS, learning_rate=0.1), on_step=told.append)
    assert len(told) == 9


def test_a_broken_checkpoint_and_a_place_that_can_not_be_written_say_so(tmp_path: Path) -> None:
    trained(built(FULL), tmp_path / "runs")
    (tmp_path / "runs" / "step-00000009" / "training.pt").write_bytes(b"broken")
    with pytest.raises(TrainingError, match=r"can't be read: .* to go on without it"):
        trained(built(FULL), tmp_path / "runs")
    (tmp_path / "file").write_text("")
    with pytest.raises(TrainingError, match="the checkpoint of step 3 can't be written"):
        trained(built(FULL), tmp_path / "file")
    assert Checkpoints(tmp_path / "nothing").latest() is None

"""A reward model learns preferences, and says how well on pairs that it has not seen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from recipes.reward_model.letters import base_model, preferences
from reward_loop.errors import DataError
from reward_loop.rinker.loops.observer import Observer
from reward_loop.rinker.rm.config import RMConfig
from reward_loop.rinker.rm.train import pair_data, train_rm
from reward_loop.training.encoding import EncodedPair
from reward_loop.training.preferences import Preference, write_preferences


class Curve(Observer):
    def __init__(self) -> None:
        self.metrics: list[Mapping[str, float]] = []

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        self.metrics.append(metrics)


def letters(tmp_path: Path, seed: int, train: int, held_out: int, **settings: Any) -> RMConfig:
    """Preferences for the letter that the prompt names, and a model of random weights."""
    pairs, unseen = preferences(train, held_out, seed=seed)
    data = {
        "path": str(write_preferences(tmp_path / "train.jsonl", pairs)),
        "test_path": str(write_preferences(tmp_path / "test.jsonl", unseen)),
    }
    model = {"base_model": str(base_model(tmp_path / "model", seed=seed)), "seed": seed}
    base = {"log_path": tmp_path / "run", "model": model, "data": data, "seed": seed, "save_every": 0, "eval_every": 0}
    return RMConfig.model_validate({**base, **settings})


def test_a_short_training_prefers_right_mostly(tmp_path: Path) -> None:
    curve = Curve()
    result = train_rm(letters(tmp_path, 0, 1600, 200, epochs=1, batch_size=32), observer=curve)
    assert result.steps == 50
    assert result.metrics["test/accuracy"] > 0.75
    assert result.metrics["test/reward_difference"] > 0
    assert curve.metrics[0]["train_loss"] == pytest.approx(0.7, abs=0.3)
    assert curve.metrics[-1]["optim/lr"] < 1e-4 < curve.metrics[25]["optim/lr"]
    assert result.checkpoint is not None
    assert result.checkpoint.sampler_path is None  # it writes nothing


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_reward_model_from_random_weights_prefers_right_on_pairs_it_has_not_seen(tmp_path: Path, seed: int) -> None:
    result = train_rm(letters(tmp_path, seed, 5400, 1050, epochs=8, max_steps=600))
    assert result.metrics["test/accuracy"] > 0.93


def test_token_ids_need_no_tokenizer_and_margins_go_along(tmp_path: Path, copy_reward_model: str) -> None:
    pairs = [Preference([1, 2], [3, 3], [4], margin=0.5), Preference([1, 2], [3], [4, 5])]
    data = {"path": str(write_preferences(tmp_path / "ids.jsonl", pairs))}
    base = {"log_path": tmp_path / "run", "model": {"base_model": copy_reward_model}, "data": data, "batch_size": 2}
    result = train_rm(RMConfig.model_validate({**base, "center": 0.01}))
    assert result.steps == 1
    assert "test/accuracy" not in result.metrics
    [first, _] = pair_data([EncodedPair((1, 2, 3, 3), (1, 2, 4), 0.5), EncodedPair((1, 2, 3), (1, 2, 4, 5))])
    assert first.model_input.to_ints() == [1, 2, 3, 3]
    assert {name: tensor.tolist() for name, tensor in first.loss_fn_inputs.items()} == {
        "rejected_tokens": [1, 2, 4],
        "margin": [0.5],
    }


def test_pairs_that_are_none_are_refused_before_anything_is_trained(tmp_path: Path, copy_reward_model: str) -> None:
    path = tmp_path / "same.jsonl"
    path.write_text('{"prompt": [1], "chosen": [2], "rejected": [2]}\n')
    base = {"log_path": tmp_path / "run", "model": {"base_model": copy_reward_model}, "data": {"path": str(path)}}
    with pytest.raises(DataError, match="chosen and rejected are the same"):
        train_rm(RMConfig.model_validate(base))
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_a_pair_about_a_score_that_the_model_lacks_is_refused(tmp_path: Path, copy_reward_model: str) -> None:
    pairs = [Preference([1], [2], [3], label=0), Preference([1], [4], [5], label=3)]
    data = {"path": str(write_preferences(tmp_path / "labels.jsonl", pairs))}
    base = {"log_path": tmp_path / "run", "model": {"base_model": copy_reward_model}, "data": data}
    with pytest.raises(DataError, match=r"preferences\[1\]: .*labels\.jsonl: the pair is about label 3") as error:
        train_rm(RMConfig.model_validate(base))
    assert "leave label out" in error.value.message
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_without_max_tokens_a_pair_is_as_long_as_the_model_takes(tmp_path: Path, copy_reward_model: str) -> None:
    pairs = [Preference([1] * 60, [2] * 4, [3]), Preference([1] * 60, [2] * 5, [3])]
    data = {"path": str(write_preferences(tmp_path / "long.jsonl", pairs))}
    base = {"log_path": tmp_path / "run", "model": {"base_model": copy_reward_model}, "data": data}
    with pytest.raises(DataError, match=r"preferences\[1\]: the pair is 65 tokens"):
        train_rm(RMConfig.model_validate(base))
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
    result = train_rm(RMConfig.model_validate({**base, "log_path": tmp_path / "drop", "data": {**data, "too_long": "drop"}}))
    assert result.metrics["num_sequences"] == 1


def test_pairs_that_are_all_dropped_are_refused(tmp_path: Path, copy_reward_model: str) -> None:
    data = {
        "path": str(write_preferences(tmp_path / "long.jsonl", [Preference([1, 2, 3], [4], [5])])),
        "max_tokens": 2,
        "too_long": "drop",
    }
    base = {"log_path": tmp_path / "run", "model": {"base_model": copy_reward_model}, "data": data}
    with pytest.raises(DataError, match="every pair is longer than 2 tokens"):
        train_rm(RMConfig.model_validate(base))

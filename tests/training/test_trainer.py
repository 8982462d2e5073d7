"""The training loop: it learns, repeats itself exactly, adds up micro-batches, and stops before it breaks a model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from reward_loop.errors import TrainingError
from reward_loop.sync.training_mode import RewardModelTrainingMode
from reward_loop.training.encoding import EncodedPair
from reward_loop.training.readout import Readout
from reward_loop.training.reward_model import load_reward_model, save_reward_model
from reward_loop.training.scores import score_rows
from reward_loop.training.settings import TrainingSettings
from reward_loop.training.trainer import Step, train_reward_model
from reward_loop.training.training_modes import trained_by
from tests.training.models import VOCABULARY, pairs, tiny_model

SETTINGS = TrainingSettings(steps=4, batch_pairs=8, learning_rate=1e-2, warmup_steps=2)
SOME = pairs(30)


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def same(one: nn.Module, other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.named_parameters())


@pytest.mark.parametrize("mode", RewardModelTrainingMode)
def test_it_learns_what_the_pairs_say(mode: RewardModelTrainingMode) -> None:
    model = trained_by(tiny_model(), mode)
    settings = TrainingSettings(steps=60, batch_pairs=16, learning_rate=2e-2, warmup_steps=5)
    result = train_reward_model(model, pairs(200), settings, held_out=pairs(100, seed=1))
    assert result.held_out is not None
    assert result.held_out.accuracy > (0.6 if mode is RewardModelTrainingMode.HEAD_ONLY else 0.9)
    assert result.steps[-1].loss < result.steps[0].loss
    assert not model.training


def test_what_is_frozen_stays_as_it_is() -> None:
    model = trained_by(tiny_model(), RewardModelTrainingMode.HEAD_ONLY)
    before = weights(model)
    train_reward_model(model, SOME, SETTINGS)
    assert [name for name, value in weights(model).items() if not torch.equal(value, before[name])] == ["score.weight"]


def test_the_same_seed_gives_the_same_weights_and_leaves_the_callers_random_numbers_alone() -> None:
    before = torch.get_rng_state()
    models = [tiny_model(attention_dropout=0.2) for _ in range(3)]
    for model, seed in zip(models, (0, 0, 1), strict=True):
        train_reward_model(model, SOME, replace(SETTINGS, seed=seed))
    assert same(models[0], weights(models[1]))
    assert not same(models[0], weights(models[2]))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("by_length", [True, False])
def test_micro_batches_add_up_to_the_batch(by_length: bool) -> None:
    whole, cut = tiny_model(), tiny_model()
    given = [replace(pair, margin=0.1 * index) for index, pair in enumerate(SOME)]
    settings = replace(SETTINGS, centring=0.1)
    first = train_reward_model(whole, given, settings)
    second = train_reward_model(cut, given, replace(settings, micro_batch_pairs=3, by_length=by_length))
    for name, value in cut.named_parameters():
        torch.testing.assert_close(value, dict(whole.named_parameters())[name], atol=1e-4, rtol=0)
    assert [step.loss for step in first.steps] == pytest.approx([step.loss for step in second.steps], abs=1e-5)
    assert [step.accuracy for step in first.steps] == [step.accuracy for step in second.steps]


def test_every_step_is_told_with_what_was_held_out() -> None:
    told: list[Step] = []
    settings = replace(SETTINGS, evaluate_every=2, steps=5)
    result = train_reward_model(tiny_model(), SOME, settings, held_out=pairs(9, seed=1), on_step=told.append)
    assert [step.number for step in told] == [1, 2, 3, 4, 5]
    assert [step.held_out is not None for step in told] == [False, True, False, True, True]
    assert list(result.steps) == told
    assert result.held_out == told[-1].held_out
    assert [step.learning_rate for step in told] == pytest.approx([0.005, 0.01, 0.01, 0.02 / 3, 0.01 / 3])


def test_gradients_are_clipped() -> None:
    model = tiny_model()
    before = weights(model)
    # So small a gradient is lost in Adam's epsilon: nothing moves.
    [step] = train_reward_model(model, SOME, replace(SETTINGS, steps=1, max_grad_norm=1e-15)).steps
    assert step.grad_norm > 1e-2  # what it was
    for name, value in model.named_parameters():
        torch.testing.assert_close(value.detach(), before[name], atol=1e-6, rtol=0)


def test_pairs_about_one_label_train_that_label_alone() -> None:
    model = trained_by(tiny_model(labels=3), RewardModelTrainingMode.HEAD_ONLY)
    before = score_rows(model, [pair.chosen for pair in SOME])
    result = train_reward_model(model, pairs(30, label=1), SETTINGS, held_out=pairs(30, label=1))
    moved = (score_rows(model, [pair.chosen for pair in SOME]) != before).any(dim=0)
    assert moved.tolist() == [False, True, False]
    assert result.held_out is not None
    assert set(result.held_out.by_label) == {1}


def test_a_readout_by_weights_trains_every_label_that_it_weighs() -> None:
    model = trained_by(tiny_model(labels=3), RewardModelTrainingMode.HEAD_ONLY)
    before = score_rows(model, [pair.chosen for pair in SOME])
    train_reward_model(model, SOME, replace(SETTINGS, readout=Readout(weights=(1.0, -1.0, 0.0))))
    moved = (score_rows(model, [pair.chosen for pair in SOME]) != before).any(dim=0)
    assert moved.tolist() == [True, True, False]


def test_a_bfloat16_body_is_trained_by_steps_that_it_could_not_hold(tmp_path: Path) -> None:
    model = load_reward_model(save_reward_model(tiny_model(), tmp_path), dtype="bfloat16")
    before = weights(model)
    train_reward_model(model, SOME, replace(SETTINGS, steps=40, learning_rate=5e-5, warmup_steps=0))
    body = {name: value for name, value in model.named_parameters() if name.startswith("model.layers") and value.ndim == 2}
    assert all(not torch.equal(value, before[name]) for name, value in body.items())


def test_a_loss_that_is_not_finite_names_step_and_pairs_and_changes_nothing() -> None:
    model = tiny_model()
    bad = [*pairs(2), EncodedPair((9,), (8,), margin=float("inf"))]
    untouched = weights(model)
    with pytest.raises(TrainingError) as error:
        train_reward_model(model, bad, replace(SETTINGS, batch_pairs=3))
    assert "the loss is inf in step 1 of 4, whose pairs are " in str(error.value)
    assert "lower learning_rate=0.01" in str(error.value)
    assert same(model, untouched)


def test_a_gradient_that_is_not_finite_does_the_same() -> None:
    model = tiny_model()
    with torch.no_grad():
        model.get_parameter("score.weight").mul_(1e38)  # the loss is finite, its gradient is not
    untouched = weights(model)
    with pytest.raises(TrainingError, match=r"is (inf|nan) in step 1 of 4"):
        train_reward_model(model, SOME, SETTINGS)
    assert same(model, untouched)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "there are no pairs to train on"),
        ([EncodedPair((1, VOCABULARY), (2,))], r"sample pairs\[0\]: token 32 is none of the model's 32"),
        ([EncodedPair((1,), ())], r"sample pairs\[0\]: an answer holds no token"),
        ([EncodedPair((1,) * 65, (2,))], r"sample pairs\[0\]: the pair is 65 tokens and the model takes 64; encode it with"),
        ([EncodedPair((1,), (2,), label=1)], r"sample pairs\[0\]: the pair is about label 1 of a head of 1 labels"),
    ],
)
def test_pairs_that_do_not_fit_the_model_are_refused_at_once(given: list[EncodedPair], message: str) -> None:
    with pytest.raises(TrainingError, match=message):
        train_reward_model(tiny_model(), given, SETTINGS)
    with pytest.raises(TrainingError, match=r"held_out\[0\]: token 32"):
        train_reward_model(tiny_model(), SOME, SETTINGS, held_out=[EncodedPair((1, VOCABULARY), (2,))])
    with pytest.raises(TrainingError, match="nothing of this Qwen2ForSequenceClassification is trained"):
        train_reward_model(tiny_model().requires_grad_(False), SOME, SETTINGS)

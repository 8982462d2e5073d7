"""Reward models: their heads compute in float32, are saved so, and are scored at the last token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from transformers import AutoModelForSequenceClassification, Qwen2ForCausalLM

from reward_loop.errors import TrainingError
from reward_loop.sync.training_mode import RewardModelTrainingMode
from reward_loop.training.batches import padded
from reward_loop.training.evaluation import evaluate
from reward_loop.training.readout import Readout
from reward_loop.training.reward_model import load_reward_model, new_reward_model, save_reward_model
from reward_loop.training.scores import score_rows, sequence_scores
from reward_loop.training.training_modes import LoraSettings, trained_by, trained_parameters
from tests.training.models import config, pairs, tiny_model

ROWS = [[5, 9, 8], [7], [9, 9, 30, 31, 6]]
FULL, HEAD_ONLY, LORA = RewardModelTrainingMode.FULL, RewardModelTrainingMode.HEAD_ONLY, RewardModelTrainingMode.LORA


def by_transformers(path: Path, rows: list[list[int]] = ROWS) -> torch.Tensor:
    """Scores of a saved model one by one: without padding there is nothing to get wrong."""
    model: Any = AutoModelForSequenceClassification.from_pretrained(path, dtype=torch.float32)
    with torch.no_grad():
        return torch.cat([model(torch.tensor([row])).logits for row in rows])


def moved(model: nn.Module) -> nn.Module:
    """Change everything that is trained."""
    with torch.no_grad():
        for parameter in trained_parameters(model).values():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)).to(parameter.dtype) * 0.1)
    return model


@pytest.mark.parametrize("mode", RewardModelTrainingMode)
def test_what_is_saved_scores_in_transformers_as_the_model_in_training(tmp_path: Path, mode: RewardModelTrainingMode) -> None:
    model = moved(trained_by(tiny_model(), mode))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    saved = save_reward_model(model, tmp_path / "model")
    torch.testing.assert_close(by_transformers(saved), score_rows(model, ROWS), atol=1e-5, rtol=0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    torch.testing.assert_close(score_rows(load_reward_model(saved), ROWS), score_rows(model, ROWS), atol=1e-5, rtol=0)


@pytest.mark.parametrize("mode", RewardModelTrainingMode)
def test_a_bfloat16_body_has_a_float32_head_in_memory_and_in_files(tmp_path: Path, mode: RewardModelTrainingMode) -> None:
    start = save_reward_model(tiny_model(), tmp_path / "start")
    model = moved(trained_by(load_reward_model(start, dtype="bfloat16"), mode))
    scores = sequence_scores(model, *padded(ROWS, 0))
    assert scores.dtype == torch.float32
    assert scores.tolist() != scores.bfloat16().float().tolist()
    tensors = load_file(save_reward_model(model, tmp_path / "model") / "model.safetensors")
    assert {name for name, value in tensors.items() if value.dtype == torch.float32} == {"score.weight"}
    loaded: Any = load_reward_model(tmp_path / "model", dtype="bfloat16")
    assert torch.equal(loaded.score.weight, tensors["score.weight"])  # transformers alone would have rounded it
    assert next(loaded.model.parameters()).dtype == torch.bfloat16
    torch.testing.assert_close(score_rows(loaded, ROWS), score_rows(model, ROWS), atol=0.05, rtol=0)


def test_a_called_model_computes_its_head_in_float32_too(tmp_path: Path) -> None:
    start = save_reward_model(tiny_model(), tmp_path / "start")
    model: Any = load_reward_model(start, dtype="bfloat16")
    assert model(torch.tensor([[5, 9]])).logits.dtype == torch.float32


def test_rows_are_scored_at_their_last_token_even_where_it_is_the_padding_token(tmp_path: Path) -> None:
    rows = [[5, 9, 0], [7, 0, 6, 9], [0, 0]]  # 0 is the padding token, and a text may end in it
    model = tiny_model()
    save_reward_model(model, tmp_path)
    plain: Any = model
    hidden = [plain.model(torch.tensor([row])).last_hidden_state[0, -1] for row in rows]
    expected = plain.score(torch.stack(hidden))
    torch.testing.assert_close(score_rows(model, rows), expected.detach(), atol=1e-5, rtol=0)


def test_scores_do_not_depend_on_what_else_is_in_the_batch_nor_on_the_mode() -> None:
    model = tiny_model(attention_dropout=0.5)
    model.train()
    together = score_rows(model, ROWS)
    assert model.training
    alone = torch.cat([score_rows(model, [row], batch_rows=1) for row in ROWS])
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=0)


def test_each_mode_trains_what_it_says() -> None:
    def names(mode: RewardModelTrainingMode, **more: Any) -> set[str]:
        return set(trained_parameters(trained_by(tiny_model(), mode, **more)))

    assert names(HEAD_ONLY) == {"score.weight"}
    assert names(FULL) == set(dict(tiny_model().named_parameters()))
    lora = names(LORA, lora=LoraSettings(r=2, target_modules=("q_proj",)))
    assert {name.split(".")[-4] for name in lora if "lora_" in name} == {"q_proj"}
    assert [name for name in lora if "lora_" not in name] == ["base_model.model.score.modules_to_save.default.weight"]


def test_a_mode_after_another_trains_what_it_says() -> None:
    model = trained_by(trained_by(tiny_model(), HEAD_ONLY), FULL)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_what_peft_refuses_and_a_frozen_model_say_so() -> None:
    with pytest.raises(TrainingError, match=r"peft refuses .*no_such_proj"):
        trained_by(tiny_model(), LORA, LoraSettings(target_modules=("no_such_proj",)))
    with pytest.raises(TrainingError, match="every parameter is frozen"):
        trained_parameters(tiny_model().requires_grad_(False))


def test_a_language_model_gets_a_head_drawn_from_the_seed(tmp_path: Path) -> None:
    language: Any = Qwen2ForCausalLM
    language(config()).save_pretrained(tmp_path)
    before = torch.get_rng_state()
    heads: list[Any] = [load_reward_model(tmp_path, labels=2, seed=seed) for seed in (0, 0, 1)]
    assert heads[0].score.weight.shape == (2, 32)
    assert torch.equal(heads[0].score.weight, heads[1].score.weight)
    assert not torch.equal(heads[0].score.weight, heads[2].score.weight)
    assert torch.equal(torch.get_rng_state(), before)


def test_models_that_can_not_be_trained_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match="nothing can't be loaded"):
        load_reward_model(tmp_path / "nothing")
    save_reward_model(tiny_model(labels=2), tmp_path / "two")
    with pytest.raises(TrainingError, match="as a reward model of 3 labels"):
        load_reward_model(tmp_path / "two", labels=3)
    with pytest.raises(TrainingError, match="names no padding token"):
        new_reward_model(config(pad_token_id=None))
    with pytest.raises(TrainingError, match="pad_token_id=99 is none of the 32 tokens"):
        new_reward_model(config(), pad_token_id=99)


def test_the_padding_token_that_is_given_is_saved(tmp_path: Path) -> None:
    save_reward_model(new_reward_model(config(pad_token_id=None), pad_token_id=3), tmp_path)
    loaded: Any = load_reward_model(tmp_path)
    assert loaded.config.pad_token_id == 3


def test_an_evaluation_tells_labels_apart() -> None:
    model = tiny_model(labels=2)
    about = [*pairs(20, seed=1, label=0), *pairs(20, seed=2, label=1)]
    whole = evaluate(model, about)
    halves = [evaluate(model, about[:20]), evaluate(model, about[20:])]
    assert whole.by_label == {0: halves[0].accuracy, 1: halves[1].accuracy}
    assert whole.accuracy == pytest.approx(sum(half.accuracy for half in halves) / 2)
    assert evaluate(model, pairs(20, seed=1), Readout(label=0)).accuracy == halves[0].accuracy

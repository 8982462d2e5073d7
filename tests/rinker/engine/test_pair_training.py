"""Reward models: pairs, scores at the last token, and a training that learns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.engine.engine import Engine
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.types import AdamParams, Datum, LoraConfig, ModelSpec
from reward_loop.training.scores import score_rows
from tests.rinker.engine.models import POSITIONS, of, pairs, write_language_model


def scorer_of(path: str, lora: LoraConfig | None = None, **settings: Any) -> Engine:
    return Engine(ModelSpec(path, kind="seq_cls", lora=lora), EngineSettings.model_validate({"device": "cpu", **settings}))


@pytest.fixture(scope="module")
def scorer(reward_model: str) -> Engine:
    return scorer_of(reward_model)


def test_scores_are_those_of_the_last_token(scorer: Engine) -> None:
    data = pairs(5)
    output = scorer.forward_backward(data, "bradley_terry", forward_only=True)
    wanted = score_rows(scorer.model, [one.model_input.to_ints() for one in data])
    other = score_rows(scorer.model, [one.loss_fn_inputs["rejected_tokens"].tolist() for one in data])
    for number, one in enumerate(output.loss_fn_outputs):
        torch.testing.assert_close(one["scores"].to_torch(), wanted[number], atol=1e-6, rtol=0)
        torch.testing.assert_close(one["rejected_scores"].to_torch(), other[number], atol=1e-6, rtol=0)
    right = (wanted > other).float().mean().item()
    assert output.metrics["accuracy:mean"] == pytest.approx(right)


def test_single_answers_are_scored_without_a_loss(scorer: Engine) -> None:
    output = scorer.forward_backward([of([2, 3]), of([4])], "bradley_terry", forward_only=True)
    assert output.metrics == {"loss:sum": 0.0}
    assert [set(one) for one in output.loss_fn_outputs] == [{"scores"}, {"scores"}]


def test_a_score_that_is_not_finite_is_an_error_and_no_score(reward_model: str) -> None:
    engine = scorer_of(reward_model)
    with torch.no_grad():
        next(engine.model.parameters())[7] = float("nan")  # the embedding of token 7
    with pytest.raises(RequestFailedError, match=r"the loss is not finite; it is one of data\[1\]\."):
        engine.forward_backward([of([2, 3]), of([2, 7])], "bradley_terry", forward_only=True)


def test_the_padding_token_may_be_the_tokenizers(tmp_path: Path) -> None:
    without = write_language_model(tmp_path / "without", pad_token_id=None)
    with pytest.raises(RequestFailedError, match=r"can't be loaded as seq_cls: .*names no padding token"):
        scorer_of(str(without))
    beside = write_language_model(tmp_path / "beside", with_tokenizer=True, pad_token_id=None)
    plain: Any = scorer_of(str(beside)).model
    assert plain.config.pad_token_id == AutoTokenizer.from_pretrained(beside).pad_token_id


def test_a_batch_is_the_sum_of_its_pairs(reward_model: str) -> None:
    config = {"center": 0.01}
    data = [*pairs(3, margin=[0.5]), *pairs(3, seed=1, margin=[0.0])]
    together, cut = scorer_of(reward_model), scorer_of(reward_model, micro_batch_tokens=30)
    whole = together.forward_backward(data, "bradley_terry", config)
    parts = [cut.forward_backward(data[:2], "bradley_terry", config), cut.forward_backward(data[2:], "bradley_terry", config)]
    assert whole.metrics["loss:sum"] == pytest.approx(sum(part.metrics["loss:sum"] for part in parts), abs=1e-5)
    for left, right in zip(together.model.parameters(), cut.model.parameters(), strict=True):
        torch.testing.assert_close(left.grad, right.grad, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=4)], ids=["full", "lora"])
def test_it_learns_which_answer_is_preferred(reward_model: str, lora: LoraConfig | None) -> None:
    engine = scorer_of(reward_model, lora)
    data, held_out = pairs(32), pairs(64, seed=1)
    before = engine.forward_backward(held_out, "bradley_terry", forward_only=True).metrics
    for _ in range(25):
        engine.forward_backward(data, "bradley_terry")
        engine.optim_step(AdamParams(5e-3, grad_clip_norm=1.0))
    after = engine.forward_backward(held_out, "bradley_terry", forward_only=True).metrics
    assert after["accuracy:mean"] > max(0.9, before["accuracy:mean"])
    assert after["loss:sum"] < before["loss:sum"] / 2


def test_a_language_model_gets_a_new_head_drawn_from_the_specs_seed(language_model: str) -> None:
    def head(seed: int) -> torch.Tensor:
        return Engine(ModelSpec(language_model, kind="seq_cls", seed=seed), EngineSettings(device="cpu")).weights()[
            "score.weight"
        ]

    assert head(0).shape == (1, 32)
    assert torch.equal(head(0), head(0))
    assert not torch.equal(head(0), head(1))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (of([2, 3]), r"data\[1\].loss_fn_inputs lacks rejected_tokens; it has none"),
        (of([2, 3], rejected_tokens=torch.zeros(0, dtype=torch.int64)), r"\['rejected_tokens'\] has no token"),
        (of([2, 3], rejected_tokens=[2, 3]), "are the tokens of model_input; a pair needs two answers"),
        (of([2, 3], rejected_tokens=[[2], [3]]), r"has shape \[2, 1\]; give the tokens of one sequence"),
        (of([2, 3], rejected_tokens=[2, 77]), "holds token 77"),
        (of([2, 3], rejected_tokens=[2] * (POSITIONS + 1)), f"has {POSITIONS + 1} tokens"),
        (of([2, 3], rejected_tokens=[2], margin=[0.1, 0.2]), r"\['margin'\] has shape \[2\]; give one number"),
        (of([2, 3], rejected_tokens=[2], margin=[float("inf")]), r"\['margin'\] is inf"),
        (of([2, 3], rejected_tokens=[2], weights=[1.0]), r"is not read by this loss, which knows rejected_tokens, margin"),
    ],
)
def test_pairs_are_checked_before_anything_happens(scorer: Engine, bad: Datum, message: str) -> None:
    with pytest.raises(RequestFailedError, match=message) as caught:
        scorer.forward_backward([*pairs(1), bad], "bradley_terry")
    assert caught.value.category == "user"
    assert all(value.grad is None for value in scorer.model.parameters())


def test_a_reward_model_knows_one_loss(scorer: Engine) -> None:
    with pytest.raises(RequestFailedError, match=r"'cross_entropy' trains language models"):
        scorer.forward_backward(pairs(1), "cross_entropy")
    with pytest.raises(RequestFailedError, match=r"'centre'.* is no setting of bradley_terry, which has center"):
        scorer.forward_backward(pairs(1), "bradley_terry", {"centre": 0.01})


def test_pairs_and_single_answers_are_not_mixed(scorer: Engine) -> None:
    with pytest.raises(RequestFailedError, match="score pairs and single answers apart"):
        scorer.forward_backward([*pairs(1), of([2, 3])], "bradley_terry", forward_only=True)


def test_of_a_head_of_several_scores_one_is_trained(language_model: str) -> None:
    engine = Engine(ModelSpec(language_model, kind="seq_cls", num_labels=3), EngineSettings(device="cpu"))
    before = engine.weights()["score.weight"]
    output = engine.forward_backward(pairs(2), "bradley_terry", {"label": 1})
    assert output.loss_fn_outputs[0]["scores"].shape == [3]
    engine.optim_step(AdamParams(1e-2))
    moved = (engine.weights()["score.weight"] != before).any(dim=1)
    assert moved.tolist() == [False, True, False]
    for label in (3, 0.5):
        with pytest.raises(RequestFailedError, match="the head has 3 scores, 0 to 2") as caught:
            engine.forward_backward(pairs(2), "bradley_terry", {"label": label})
        assert caught.value.category == "user"


def test_a_head_of_other_scores_than_the_spec_says_is_refused(reward_model: str) -> None:
    with pytest.raises(RequestFailedError, match="can't be loaded as seq_cls"):
        Engine(ModelSpec(reward_model, kind="seq_cls", num_labels=3), EngineSettings(device="cpu"))

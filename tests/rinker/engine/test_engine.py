"""Passes and steps: sums that add up however they are cut, gradients that wait for a step, and a loss that falls."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from transformers import AutoModelForCausalLM

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.engine.engine import Engine
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.losses.registry import TOKEN_LOSSES
from reward_loop.rinker.types import AdamParams, Datum, LoraConfig, ModelSpec
from tests.rinker.engine.models import datum, of, sampled, supervised

LORA = LoraConfig(rank=4)


def engine_of(path: str, lora: LoraConfig | None = None, **settings: object) -> Engine:
    return Engine(ModelSpec(path, lora=lora), EngineSettings.model_validate({"device": "cpu", **settings}))


def gradients(engine: Engine) -> dict[str, torch.Tensor]:
    return {name: value.grad.clone() for name, value in engine.model.named_parameters() if value.grad is not None}


def data_for(loss: str) -> list[Datum]:
    if loss == "cross_entropy":
        return supervised(6)
    made = sampled(6)
    if loss != "gspo":
        return made
    return [of(one.model_input.to_ints(), **one.loss_fn_inputs, sequence_ratio_mask=_sampled(one)) for one in made]


def _sampled(one: Datum) -> torch.Tensor:
    return (one.loss_fn_inputs["logprobs"].to_torch() != 0).float()


def same(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor], tolerance: float = 1e-6) -> None:
    assert left.keys() == right.keys()
    for name, value in left.items():
        torch.testing.assert_close(value, right[name], atol=tolerance, rtol=1e-5)


def test_log_probabilities_are_those_of_the_plain_model(language_model: str) -> None:
    data = supervised(4)
    outputs = engine_of(language_model).forward_backward(data, "cross_entropy", forward_only=True).loss_fn_outputs
    plain = AutoModelForCausalLM.from_pretrained(language_model)
    for one, output in zip(data, outputs, strict=True):
        logits = plain(torch.tensor([one.model_input.to_ints()])).logits[0].log_softmax(-1)
        wanted = logits.gather(-1, one.loss_fn_inputs["target_tokens"].to_torch()[:, None])[:, 0]
        torch.testing.assert_close(output["logprobs"].to_torch(), wanted.detach(), atol=1e-6, rtol=0)


@pytest.mark.parametrize("loss", TOKEN_LOSSES)
def test_a_padded_batch_is_the_sum_of_its_sequences(language_model: str, loss: str) -> None:
    together, apart = engine_of(language_model), engine_of(language_model)
    data = data_for(loss)
    whole = together.forward_backward(data, loss)
    parts = [apart.forward_backward([one], loss) for one in data]
    assert whole.metrics["loss:sum"] == pytest.approx(sum(part.metrics["loss:sum"] for part in parts), abs=1e-5)
    same(gradients(together), gradients(apart))
    for output, part in zip(whole.loss_fn_outputs, parts, strict=True):  # in the order of the data
        torch.testing.assert_close(
            output["logprobs"].to_torch(), part.loss_fn_outputs[0]["logprobs"].to_torch(), atol=1e-6, rtol=0
        )


def test_metrics_of_micro_batches_are_those_of_the_whole(language_model: str) -> None:
    whole = engine_of(language_model).forward_backward(sampled(8), "ppo").metrics
    cut = engine_of(language_model, micro_batch_tokens=20).forward_backward(sampled(8), "ppo").metrics
    assert cut == pytest.approx(dict(whole), abs=1e-5)
    assert set(whole) == {
        "loss:sum",
        "num_tokens:sum",
        "clip_frac:mean",
        "entropy:mean",
        "kl_sample_train_v1:mean",
        "kl_sample_train_v2:mean",
        "kl_sample_train_v3:mean",
    }


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_calls_add_up_until_the_step(language_model: str, lora: LoraConfig | None) -> None:
    at_once, chunked = engine_of(language_model, lora), engine_of(language_model, lora)
    data = sampled(9)
    at_once.forward_backward(data, "importance_sampling")
    for begin in range(0, 9, 4):
        chunked.forward_backward(data[begin : begin + 4], "importance_sampling")
    same(gradients(at_once), gradients(chunked))
    for engine in (at_once, chunked):
        assert engine.optim_step(AdamParams(1e-3)).metrics is not None
        assert gradients(engine) == {}
        assert engine.step == 1
    # Adam divides by the gradient's size: what is rounding in a gradient near 0 is a whole step in the weight.
    same(dict(at_once.weights()), dict(chunked.weights()), tolerance=2e-3)


@pytest.mark.parametrize("forward_only", [False, True])
def test_a_forward_adds_no_gradient(language_model: str, forward_only: bool) -> None:
    engine = engine_of(language_model)
    engine.forward_backward(sampled(3), "ppo", forward_only=forward_only)
    assert bool(gradients(engine)) is not forward_only


def test_a_forward_is_the_same_as_a_forward_backward(language_model: str) -> None:
    engine = engine_of(language_model)
    assert engine.forward_backward(sampled(3), "ppo", forward_only=True) == engine.forward_backward(sampled(3), "ppo")


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_cross_entropy_falls(language_model: str, lora: LoraConfig | None) -> None:
    engine = engine_of(language_model, lora)
    data = [datum([2, 3, 4, 5, 6, 7]), datum([7, 6, 5, 4])]
    losses: list[float] = []
    for _ in range(30):
        losses.append(engine.forward_backward(data, "cross_entropy").metrics["loss:sum"])
        engine.optim_step(AdamParams(1e-2))
    assert losses[0] > 15
    assert losses[-1] < 1


def test_masked_positions_take_no_part_whatever_is_said_there(language_model: str) -> None:
    tokens = [2, 3, 4, 5, 6]
    for loss in ("importance_sampling", "ppo", "cispo", "dro"):
        engine, other = engine_of(language_model), engine_of(language_model)
        inputs = {"logprobs": [0.0, 0.0, -1.0, -2.0], "advantages": [0.0, 0.0, 1.0, 1.0]}
        engine.forward_backward([datum(tokens, **inputs)], loss)
        masked = {
            "logprobs": [-1e4, -3.0, -1.0, -2.0],
            "advantages": [5.0, 5.0, 1.0, 1.0],
            "mask": [0.0, 0.0, 1.0, 1.0],
        }
        other.forward_backward([datum(tokens, **masked)], loss)
        same(gradients(engine), gradients(other), tolerance=0)


def test_what_makes_gspos_ratio_need_not_be_trained(language_model: str) -> None:
    engine = engine_of(language_model)
    masks = {"mask": [0.0, 0.0, 1.0], "sequence_ratio_mask": [1.0, 1.0, 1.0]}
    one = datum([2, 3, 4, 5], logprobs=[-1.0, 0.0, -3.0], advantages=[0.0, 0.0, 1.0], **masks)
    found = engine.forward_backward([one], "gspo", {"clip_low_threshold": 0.0, "clip_high_threshold": 1e9})
    logprobs = found.loss_fn_outputs[0]["logprobs"].to_torch()
    ratio = (logprobs - torch.tensor([-1.0, 0.0, -3.0])).mean().exp()
    assert found.metrics["loss:sum"] == pytest.approx(-ratio.item(), rel=1e-5)


def test_one_advantage_of_a_sequence_goes_to_its_sampled_tokens(language_model: str) -> None:
    def metrics(advantages: Sequence[float]) -> object:
        one = datum([2, 3, 4, 5, 6], logprobs=[0.0, 0.0, -1.0, -2.0], advantages=list(advantages))
        return engine_of(language_model).forward_backward([one], "importance_sampling").metrics

    assert metrics([0.5]) == metrics([0.0, 0.0, 0.5, 0.5])


def test_the_seeds_key_of_the_samplers_log_probabilities_is_taken(language_model: str) -> None:
    one = datum([2, 3, 4], sampling_logprobs=[-1.0, -2.0], advantages=[1.0, 1.0])
    other = datum([2, 3, 4], logprobs=[-1.0, -2.0], advantages=[1.0, 1.0])
    engine = engine_of(language_model)
    assert engine.forward_backward([one], "ppo", {"eps": 0.1}) == engine.forward_backward(
        [other], "ppo", {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1}
    )


def test_thresholds_may_come_with_each_token(language_model: str) -> None:
    wide = [
        datum(
            [2, 3, 4], logprobs=[-9.0, -9.0], advantages=[1.0, 1.0], clip_low_threshold=[0.0, 0.0], clip_high_threshold=[1e9, 1e9]
        )
    ]
    engine = engine_of(language_model)
    assert engine.forward_backward(wide, "ppo").metrics["clip_frac:mean"] == 0.0
    narrow = [datum([2, 3, 4], logprobs=[-9.0, -9.0], advantages=[1.0, 1.0])]
    assert engine.forward_backward(narrow, "ppo").metrics["clip_frac:mean"] == 1.0


@pytest.mark.parametrize("sparse", [False, True])
def test_several_targets_per_position(language_model: str, sparse: bool) -> None:
    engine = engine_of(language_model)
    targets = torch.tensor([[3, 9, 0], [4, 0, 0], [5, 0, 0]])
    weights = torch.tensor([[0.75, 0.25, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    if sparse:
        targets = torch.nn.functional.pad(targets, (0, 20))
        weights = torch.nn.functional.pad(weights, (0, 20))
    one = datum([2, 3, 4], target_tokens=targets, weights=weights)
    assert (one.loss_fn_inputs["weights"].sparse_crow_indices is not None) is sparse
    found = engine.forward_backward([one, datum([2, 3])], "cross_entropy")
    logprobs = found.loss_fn_outputs[0]["logprobs"].to_torch()
    assert logprobs.shape == targets.shape
    assert found.loss_fn_outputs[1]["logprobs"].shape == [1]
    single = engine.forward_backward([datum([2, 3])], "cross_entropy").metrics["loss:sum"]
    assert found.metrics["loss:sum"] - single == pytest.approx(-(weights * logprobs).sum().item(), abs=1e-5)


def test_without_weights_every_target_weighs_1(language_model: str) -> None:
    engine = engine_of(language_model)
    assert engine.forward_backward([datum([2, 3, 4])], "cross_entropy") == engine.forward_backward(
        [datum([2, 3, 4], weights=[1.0, 1.0])], "cross_entropy"
    )


def test_a_step_needs_gradients(language_model: str) -> None:
    engine = engine_of(language_model)
    with pytest.raises(RequestFailedError, match="call forward_backward first") as caught:
        engine.optim_step(AdamParams())
    assert caught.value.category == "user"


def test_the_copy_of_the_weights_does_not_follow_the_training(language_model: str) -> None:
    engine = engine_of(language_model)
    before = engine.weights()
    kept = {name: value.clone() for name, value in before.items()}
    engine.forward_backward(supervised(2), "cross_entropy")
    engine.optim_step(AdamParams(1e-2))
    assert all(torch.equal(before[name], value) for name, value in kept.items())
    assert any(not torch.equal(engine.weights()[name], value) for name, value in kept.items())

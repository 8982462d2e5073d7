"""Losses of the user's own: the same gradient as a direct backward, through nothing but log-probabilities and weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.engine.custom_loss import SURROGATE, CustomLossFn, Linearised, forward_data, linearised
from reward_loop.rinker.engine.engine import Engine
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.types import Datum, ForwardBackwardOutput, ModelInput, ModelSpec, TensorData
from tests.rinker.engine.models import datum, sampled, supervised


@pytest.fixture
def engine(language_model: str) -> Engine:
    return Engine(ModelSpec(language_model), EngineSettings(device="cpu"))


def run(engine: Engine, data: list[Datum], fn: CustomLossFn) -> ForwardBackwardOutput:
    outputs = engine.forward_backward(forward_data(data), SURROGATE, forward_only=True).loss_fn_outputs
    made = linearised(data, outputs, fn)
    return made.output(engine.forward_backward(made.data, SURROGATE))


def contrast(data: list[Datum], logprobs: list[torch.Tensor]) -> tuple[torch.Tensor, Mapping[str, float]]:
    """A loss that is far from linear, in which every sequence depends on the others."""
    sums = torch.stack([one.sum() for one in logprobs])
    return -torch.nn.functional.logsigmoid(sums[0] - sums[1]) + sums.logsumexp(0).square(), {
        "distance": (sums[0] - sums[1]).item()
    }


def test_the_gradient_is_that_of_a_direct_backward(engine: Engine, language_model: str) -> None:
    data = supervised(3)
    run(engine, data, contrast)
    plain: Any = AutoModelForCausalLM.from_pretrained(language_model)
    logprobs: list[torch.Tensor] = []
    for one in data:
        row = plain(torch.tensor([one.model_input.to_ints()])).logits[0].log_softmax(-1)
        logprobs.append(row.gather(-1, one.loss_fn_inputs["target_tokens"].to_torch()[:, None])[:, 0])
    direct, _ = contrast(data, logprobs)
    direct.backward()  # type: ignore[no-untyped-call]
    wanted = dict(plain.named_parameters())
    for name, value in engine.model.named_parameters():
        torch.testing.assert_close(value.grad, wanted[name].grad, atol=1e-5, rtol=1e-5)


def test_importance_sampling_as_a_custom_loss_is_the_built_in_one(engine: Engine, language_model: str) -> None:
    def fn(data: list[Datum], logprobs: list[torch.Tensor]) -> tuple[torch.Tensor, Mapping[str, float]]:
        terms = [
            (logprob - one.loss_fn_inputs["logprobs"].to_torch()).exp() * one.loss_fn_inputs["advantages"].to_torch()
            for one, logprob in zip(data, logprobs, strict=True)
        ]
        return -torch.cat(terms).sum(), {}

    other = Engine(ModelSpec(language_model), EngineSettings(device="cpu"))
    custom, built_in = run(engine, sampled(5), fn), other.forward_backward(sampled(5), "importance_sampling")
    assert custom.metrics["loss:sum"] == pytest.approx(built_in.metrics["loss:sum"], abs=1e-5)
    for mine, theirs in zip(engine.model.parameters(), other.model.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, atol=1e-6, rtol=1e-5)


def test_the_result_has_the_losss_own_value_and_metrics(engine: Engine) -> None:
    found = run(engine, supervised(3), contrast)
    assert {"loss:sum", "surrogate_loss:sum", "distance"} <= set(found.metrics)
    assert found.metrics["loss:sum"] != found.metrics["surrogate_loss:sum"]
    assert len(found.loss_fn_outputs) == 3


def test_the_model_sees_targets_and_weights_only() -> None:
    [one] = forward_data(sampled(1))
    assert set(one.loss_fn_inputs) == {"target_tokens", "weights"}
    assert not any(one.loss_fn_inputs["weights"].data)
    kept = datum([2, 3], weights=[0.5])
    assert forward_data([kept]) == [kept]


def output(*logprobs: float) -> dict[str, TensorData]:
    return {"logprobs": TensorData(logprobs, "float32")}


def call(fn: Any, *logprobs: float) -> Linearised:
    return linearised([datum([2, 3, 4])] * 2, [output(*logprobs)] * 2, fn)


def test_a_sequence_that_the_loss_does_not_look_at_has_the_weight_0() -> None:
    made = call(lambda _, logprobs: (logprobs[0].square().sum(), {}), -1.0, -2.0)
    assert [one.loss_fn_inputs["weights"].data for one in made.data] == [[2.0, 4.0], [0.0, 0.0]]
    assert made.loss == 5.0


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda _, logprobs: logprobs[0].sum(), r"must return \(loss, metrics\), a tensor and a dict"),
        (lambda _, logprobs: (logprobs[0], {}), "must be a tensor of one number"),
        (lambda _, logprobs: (1.0, {}), "must be a tensor of one number; it is 1.0"),
        (lambda _, logprobs: (logprobs[0].detach().sum(), {}), "does not depend on the log-probabilities"),
        (lambda _, logprobs: (torch.tensor(1.0, requires_grad=True) * 1, {}), "does not depend on the log-probabilities"),
        (lambda _, logprobs: (logprobs[0].log().sum(), {}), "the custom loss is nan"),
        (
            lambda _, logprobs: ((logprobs[0] - logprobs[0].detach()).abs().sqrt().sum(), {}),
            r"its gradient by .* of data\[0\] is not",
        ),
    ],
)
def test_a_loss_that_can_not_be_used_is_refused(fn: Any, message: str) -> None:
    with pytest.raises(RequestFailedError, match=message) as caught:
        call(fn, -1.0, -2.0)
    assert caught.value.category == "user"


def test_what_the_loss_raises_is_passed_on() -> None:
    def fails(data: list[Datum], logprobs: list[torch.Tensor]) -> tuple[torch.Tensor, Mapping[str, float]]:
        raise KeyError("my own")

    with pytest.raises(KeyError, match="my own"):
        call(fails, -1.0)


def test_a_datum_without_targets_is_refused() -> None:
    with pytest.raises(RequestFailedError, match=r"data\[0\].loss_fn_inputs lacks target_tokens"):
        forward_data([Datum(ModelInput.from_ints([1, 2]))])

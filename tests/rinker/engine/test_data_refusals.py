"""Data that can't be trained on: refused before anything happens, with the datum, the key and the remedy."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.engine.engine import Engine
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.types import AdamParams, Datum, ModelSpec, TensorData
from tests.rinker.engine.models import POSITIONS, datum, of, pairs, sampled, supervised

GOOD = {"logprobs": [0.0, -1.0], "advantages": [0.0, 1.0]}


def rl(**inputs: Any) -> Datum:
    return of([2, 3], **{"target_tokens": [3, 4], **GOOD, **inputs})


@pytest.fixture(scope="module")
def engine(language_model: str) -> Engine:
    return Engine(ModelSpec(language_model), EngineSettings(device="cpu"))


@pytest.mark.parametrize(
    ("loss", "bad", "message"),
    [
        ("ppo", of([]), r"data\[1\].model_input has no token"),
        ("ppo", of([2, 16], target_tokens=[1, 2]), r"data\[1\].model_input holds token 16, .* 16 \(0 to 15\)"),
        ("ppo", of([-1, 2], target_tokens=[1, 2]), r"data\[1\].model_input holds token -1"),
        ("ppo", of([1.5, 2], target_tokens=[1, 2]), r"data\[1\].model_input holds something other than token ids"),
        ("ppo", of([2] * (POSITIONS + 1)), rf"data\[1\].model_input has {POSITIONS + 1} tokens and the model takes {POSITIONS}"),
        (
            "ppo",
            of([2, 3], target_tokens=[3, 4], advantages=[0.0, 1.0]),
            r"data\[1\].loss_fn_inputs lacks logprobs; it has advantages",
        ),
        ("ppo", of([2, 3]), r"lacks target_tokens and logprobs and advantages; it has none"),
        (
            "ppo",
            rl(weights=[1.0, 1.0]),
            r"data\[1\].loss_fn_inputs\['weights'\] is not read by this loss, which knows target_tokens",
        ),
        ("ppo", rl(sampling_logprobs=torch.zeros(2)), "two names of one input"),
        (
            "ppo",
            rl(target_tokens=[3, 4, 5]),
            r"\['target_tokens'\] has shape \[3\] and must have \[2\]: model_input has 2 tokens",
        ),
        ("ppo", rl(target_tokens=[[3, 4], [3, 4]]), r"\['target_tokens'\] has shape \[2, 2\] and must have \[2\]"),
        ("ppo", rl(target_tokens=[3, 99]), r"\['target_tokens'\] holds token 99"),
        ("ppo", rl(target_tokens=torch.tensor([3.0, 4.0])), r"\['target_tokens'\] is of dtype float32; give it as int64"),
        (
            "ppo",
            rl(advantages=[1.0, 1.0, 1.0]),
            r"\['advantages'\] has shape \[3\] and must have \[2\]: it goes with target_tokens",
        ),
        ("ppo", rl(advantages=torch.tensor([0, 1])), r"\['advantages'\] is of dtype int64; give it as float32"),
        ("ppo", rl(advantages=[0.0, float("nan")]), r"data\[1\].loss_fn_inputs\['advantages'\] is nan at position 1"),
        ("ppo", rl(logprobs=[float("-inf"), 0.0]), r"\['logprobs'\] is -inf at position 0"),
        ("ppo", rl(mask=torch.ones(2)), r"only one of data\[0\] and data\[1\] has mask"),
        (
            "cross_entropy",
            of([2, 3], target_tokens=[[3], [4]], weights=[1.0, 1.0]),
            r"\['weights'\] has shape \[2\] and must have \[2, 1\]",
        ),
        ("cross_entropy", of([2, 3], target_tokens=[[3], [4], [5]]), r"has shape \[3, 1\] and must have \[2, 1\]"),
        ("gspo", rl(), "lacks sequence_ratio_mask"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_done(engine: Engine, loss: str, bad: Datum, message: str) -> None:
    first = datum([2, 3, 4], **({} if loss == "cross_entropy" else GOOD))
    with pytest.raises(RequestFailedError, match=message) as caught:
        engine.forward_backward([first, bad] if loss != "gspo" else [bad], loss)
    assert caught.value.category == "user"
    assert all(value.grad is None for value in engine.model.parameters())


def test_a_call_needs_data(engine: Engine) -> None:
    with pytest.raises(RequestFailedError, match="data is empty"):
        engine.forward_backward([], "ppo")


def test_an_unknown_loss_and_a_bad_setting_are_refused(engine: Engine) -> None:
    with pytest.raises(RequestFailedError, match="unknown loss_fn='grpo'"):
        engine.forward_backward(sampled(1), "grpo")
    with pytest.raises(RequestFailedError, match=r"loss_fn_config\['gamma'\] is no setting of ppo"):
        engine.forward_backward(sampled(1), "ppo", {"gamma": 1.0})
    with pytest.raises(RequestFailedError, match="'bradley_terry' trains reward models"):
        engine.forward_backward(pairs(1), "bradley_terry")


def test_a_sparse_tensor_that_contradicts_itself_is_refused(engine: Engine) -> None:
    broken = TensorData([1.0], "float32", [2, 3], [0, 1, 1], [7])
    one = of([2, 3], target_tokens=torch.zeros(2, 3, dtype=torch.int64), weights=broken)
    with pytest.raises(RequestFailedError, match=r"data\[0\].loss_fn_inputs\['weights'\] of shape \[2, 3\] can't be read"):
        engine.forward_backward([one], "cross_entropy")


def test_the_length_may_be_limited_further(language_model: str) -> None:
    short = Engine(ModelSpec(language_model), EngineSettings(device="cpu", max_length=4))
    with pytest.raises(RequestFailedError, match="has 5 tokens and the model takes 4"):
        short.forward_backward([datum([1, 2, 3, 4, 5, 6])], "cross_entropy")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (AdamParams(learning_rate=float("nan")), "learning_rate=nan"),
        (AdamParams(learning_rate=-1e-4), "learning_rate=-0.0001 must be"),
        (AdamParams(beta1=1.0), r"beta1=1.0 must be below 1"),
        (AdamParams(eps=0.0), "eps=0 divides by 0"),
        (AdamParams(grad_clip_norm=float("inf")), "grad_clip_norm=inf"),
        (AdamParams(weight_decay=-0.1), "weight_decay=-0.1"),
    ],
)
def test_hyperparameters_that_make_no_sense_are_refused(engine: Engine, params: AdamParams, message: str) -> None:
    with pytest.raises(RequestFailedError, match=message) as caught:
        engine.optim_step(params)
    assert caught.value.category == "user"


def test_a_loss_that_is_not_finite_leaves_the_gradients_as_they_were(language_model: str) -> None:
    engine = Engine(ModelSpec(language_model), EngineSettings(device="cpu", micro_batch_tokens=16))
    engine.forward_backward(supervised(2), "cross_entropy")
    before = {name: value.grad.clone() for name, value in engine.model.named_parameters() if value.grad is not None}
    huge = datum([2, 3, 4, 5, 6, 7, 8], weights=[3e38] * 6)
    with pytest.raises(RequestFailedError, match=r"the loss is not finite; it is one of data\[2\]\.") as caught:
        engine.forward_backward([*supervised(2), huge], "cross_entropy")
    assert caught.value.category == "user"
    after = {name: value.grad for name, value in engine.model.named_parameters() if value.grad is not None}
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], value) for name, value in after.items())
    engine.optim_step(AdamParams(1e-3))


def test_a_gradient_that_is_not_finite_is_never_added(language_model: str) -> None:
    engine = Engine(ModelSpec(language_model), EngineSettings(device="cpu"))
    # A finite loss: two huge terms that cancel.
    one = datum([2, 2, 2], target_tokens=[3, 3, 3], weights=[3e38, 0.0, 0.0])
    scale = engine.forward_backward([datum([2, 3])], "cross_entropy").metrics["loss:sum"]
    assert scale > 0
    with pytest.raises(RequestFailedError, match="not finite") as caught:
        engine.forward_backward([one], "cross_entropy")
    assert caught.value.category == "user"
    assert engine.optim_step(AdamParams()).metrics is not None

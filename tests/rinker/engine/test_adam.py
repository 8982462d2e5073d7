"""AdamW steps: the formula, what may change from step to step, clipping, and what is reported."""

from __future__ import annotations

import pytest
import torch

from reward_loop.rinker.engine.adam import Adam
from reward_loop.rinker.engine.engine import Engine
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.types import AdamParams, LoraConfig, ModelSpec
from tests.rinker.engine.models import supervised


def stepped(weight: torch.Tensor, gradients: list[list[float]], steps: list[AdamParams]) -> torch.Tensor:
    """The formula, written out: moments with their bias taken off, and weight decay beside them."""
    weight = weight.clone().double()
    first, second = torch.zeros_like(weight), torch.zeros_like(weight)
    for number, (gradient, p) in enumerate(zip(gradients, steps, strict=True), start=1):
        g = torch.tensor(gradient, dtype=torch.float64)
        first, second = p.beta1 * first + (1 - p.beta1) * g, p.beta2 * second + (1 - p.beta2) * g * g
        unbiased = (second / (1 - p.beta2**number)).sqrt() + p.eps
        weight = weight - p.learning_rate * (p.weight_decay * weight + first / (1 - p.beta1**number) / unbiased)
    return weight.float()


def test_a_step_is_adamw_with_the_parameters_of_that_step() -> None:
    weight = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    gradients = [[0.1, -0.2, 0.0], [0.3, 0.1, -1.0], [0.0, 0.0, 0.5]]
    steps = [AdamParams(0.1, weight_decay=0.1), AdamParams(0.05, eps=1e-3), AdamParams(0.2, weight_decay=0.5)]
    wanted = stepped(weight.detach(), gradients, steps)
    adam = Adam({"weight": weight})
    for gradient, params in zip(gradients, steps, strict=True):
        weight.grad = torch.tensor(gradient)
        adam.step(params)
    torch.testing.assert_close(weight.detach(), wanted, atol=1e-6, rtol=1e-6)


def test_what_it_remembers_goes_into_another() -> None:
    weight = torch.tensor([1.0], requires_grad=True)
    weight.grad = torch.tensor([0.5])
    adam = Adam({"weight": weight})
    assert adam.state() == {}
    adam.step(AdamParams())
    copy = torch.tensor([1.0], requires_grad=True)
    other = Adam({"weight": copy})
    other.load({name: value.clone() for name, value in adam.state().items()})
    assert set(other.state()) == {"weight:step", "weight:exp_avg", "weight:exp_avg_sq"}
    assert all(torch.equal(value, adam.state()[name]) for name, value in other.state().items())
    other.load({})
    assert other.state() == {}


@pytest.mark.parametrize("lora", [None, LoraConfig(rank=4)], ids=["full", "lora"])
def test_a_step_reports_itself_and_clips_all_gradients_together(language_model: str, lora: LoraConfig | None) -> None:
    engine = Engine(ModelSpec(language_model, lora=lora), EngineSettings(device="cpu"))
    engine.forward_backward(supervised(3), "cross_entropy")
    grads = [value.grad.clone() for value in engine.model.parameters() if value.grad is not None]
    norm = torch.cat([grad.flatten() for grad in grads]).norm().item()
    metrics = engine.optim_step(AdamParams(1e-3, grad_clip_norm=0.5)).metrics
    assert metrics == {"step": 1.0, "lr": 1e-3, "grad_norm": pytest.approx(norm, rel=1e-4)}


def test_clipping_shortens_and_never_lengthens(language_model: str) -> None:
    def weights(clip: float) -> dict[str, torch.Tensor]:
        engine = Engine(ModelSpec(language_model), EngineSettings(device="cpu"))
        engine.forward_backward(supervised(3), "cross_entropy")
        engine.optim_step(AdamParams(1.0, eps=1.0, grad_clip_norm=clip))  # a step about as long as the gradient
        return dict(engine.weights())

    free, wide, narrow = weights(0.0), weights(1e6), weights(1e-3)
    base = dict(Engine(ModelSpec(language_model), EngineSettings(device="cpu")).weights())
    assert all(torch.equal(free[name], wide[name]) for name in free)
    assert sum((narrow[name] - base[name]).norm() for name in base) < 0.1 * sum((free[name] - base[name]).norm() for name in base)

"""Types, devices and modes: bfloat16, activations computed twice, algorithms that repeat themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from reward_loop.config_base import Config
from reward_loop.errors import RequestFailedError
from reward_loop.rinker.engine.engine import Engine
from reward_loop.rinker.engine.loading import chosen_device
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.types import AdamParams, LoraConfig, ModelSpec
from reward_loop.training.reward_model import plain_model
from tests.rinker.engine.models import datum, sampled, supervised, write_language_model, write_reward_model

LORA = LoraConfig(rank=4)


def engine_of(path: str | Path, lora: LoraConfig | None = None, **settings: Any) -> Engine:
    return Engine(ModelSpec(str(path), lora=lora), EngineSettings.model_validate({"device": "cpu", **settings}))


def test_settings_are_frozen_and_know_no_other_names() -> None:
    assert issubclass(EngineSettings, Config)
    with pytest.raises(ValueError, match="frozen"):
        setattr(EngineSettings(), "device", "cpu")  # noqa: B010 (type checkers know that it is frozen)
    with pytest.raises(ValueError, match="Extra inputs are not permitted"):
        EngineSettings.model_validate({"precision": "bf16"})
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        EngineSettings(micro_batch_tokens=0)


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_autocast_computes_about_the_same_with_float32_weights(language_model: str, lora: LoraConfig | None) -> None:
    exact, short = engine_of(language_model, lora), engine_of(language_model, lora, autocast="bfloat16")
    wanted = exact.forward_backward(supervised(4), "cross_entropy").metrics["loss:sum"]
    got = short.forward_backward(supervised(4), "cross_entropy").metrics["loss:sum"]
    assert got == pytest.approx(wanted, rel=2e-2)
    assert got != wanted
    assert all(value.dtype == torch.float32 for value in short.model.parameters())
    short.optim_step(AdamParams(1e-3))


def test_small_steps_are_not_lost_in_bfloat16_weights(language_model: str) -> None:
    engine = engine_of(language_model, weights="bfloat16")
    before = engine.weights()
    assert {value.dtype for value in before.values()} == {torch.bfloat16}
    for _ in range(40):  # each step is far below a weight's rounding
        engine.forward_backward([datum([2, 3, 4])], "cross_entropy")
        engine.optim_step(AdamParams(2e-5))
    after = engine.weights()
    moved = sum(not torch.equal(before[name], value) for name, value in after.items())
    assert moved > len(after) / 2


def test_bfloat16_gradients_are_summed_in_float32(language_model: str) -> None:
    once, often = engine_of(language_model, weights="bfloat16"), engine_of(language_model, weights="bfloat16")
    one = datum([2, 3, 4])
    once.forward_backward([one], "cross_entropy")
    norm = once.optim_step(AdamParams()).metrics
    for _ in range(64):
        often.forward_backward([one], "cross_entropy")
    summed = often.optim_step(AdamParams()).metrics
    assert norm is not None
    assert summed is not None
    assert summed["grad_norm"] == pytest.approx(64 * norm["grad_norm"], rel=1e-5)


@pytest.mark.parametrize("weights", ["float32", "bfloat16"])
def test_a_backward_pass_that_breaks_off_adds_nothing(language_model: str, weights: str) -> None:
    def no_memory(gradient: torch.Tensor) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    engine, undisturbed = engine_of(language_model, weights=weights), engine_of(language_model, weights=weights)
    first: Any = next(engine.model.parameters())
    hook = first.register_hook(no_memory)  # reached last, when the other parameters have their gradients
    with pytest.raises(torch.OutOfMemoryError):
        engine.forward_backward(supervised(2), "cross_entropy")
    hook.remove()
    norms: list[Any] = []
    for each in (engine, undisturbed):
        each.forward_backward(supervised(2), "cross_entropy")
        norms.append(each.optim_step(AdamParams()).metrics)
    assert norms[0] == norms[1]


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_activations_computed_twice_give_the_same_gradients(language_model: str, lora: LoraConfig | None) -> None:
    kept, twice = engine_of(language_model, lora), engine_of(language_model, lora, gradient_checkpointing=True)
    for engine in (kept, twice):
        engine.forward_backward(sampled(4), "ppo")
    mine = {name: value.grad for name, value in kept.model.named_parameters() if value.grad is not None}
    theirs = {name: value.grad for name, value in twice.model.named_parameters() if value.grad is not None}
    assert mine.keys() == theirs.keys()
    for name, value in mine.items():
        torch.testing.assert_close(value, theirs[name], atol=1e-7, rtol=1e-6)


def test_the_deterministic_switch_is_put_back(language_model: str) -> None:
    engine = engine_of(language_model, deterministic=True)
    seen = list[bool]()
    engine.model.register_forward_pre_hook(lambda *_: seen.append(torch.are_deterministic_algorithms_enabled()))
    engine.forward_backward(supervised(2), "cross_entropy")
    engine.optim_step(AdamParams())
    with pytest.raises(RequestFailedError):
        engine.forward_backward([datum([2, 3], weights=[3e38])], "cross_entropy")
    assert seen == [True, True]
    assert not torch.are_deterministic_algorithms_enabled()


def test_two_runs_are_the_same_bit_for_bit(language_model: str) -> None:
    def trained() -> dict[str, torch.Tensor]:
        engine = engine_of(language_model, LORA, deterministic=True)
        for step in range(3):
            engine.forward_backward(sampled(4, seed=step), "ppo")
            engine.optim_step(AdamParams(1e-2))
        return dict(engine.weights())

    first, second = trained(), trained()
    assert all(torch.equal(value, second[name]) for name, value in first.items())


def test_dropout_is_off_unless_it_is_asked_for(tmp_path: Path) -> None:
    model = write_language_model(tmp_path, attention_dropout=0.5)
    data = supervised(4)
    off, on = engine_of(model), engine_of(model, dropout=True)
    assert off.forward_backward(data, "cross_entropy") == off.forward_backward(data, "cross_entropy", forward_only=True)
    before = torch.get_rng_state()
    first, second = (on.forward_backward(data, "cross_entropy").metrics["loss:sum"] for _ in range(2))
    assert first != second
    assert torch.equal(torch.get_rng_state(), before)  # its random numbers are its own
    again = engine_of(model, dropout=True)
    assert again.forward_backward(data, "cross_entropy").metrics["loss:sum"] == first
    assert on.forward_backward(data, "cross_entropy", forward_only=True) == off.forward_backward(
        data, "cross_entropy", forward_only=True
    )


def test_the_entropy_is_the_models_and_may_be_left_out(language_model: str) -> None:
    engine = engine_of(language_model)
    one = datum([2, 3, 4], weights=[0.0, 1.0])
    logits = engine.model(input_ids=torch.tensor([[2, 3]])).logits[0, 1]
    wanted = -(logits.softmax(-1) * logits.log_softmax(-1)).sum().item()
    assert engine.forward_backward([one], "cross_entropy").metrics["entropy:mean"] == pytest.approx(wanted, abs=1e-5)
    assert "entropy:mean" not in engine_of(language_model, entropy=False).forward_backward([one], "cross_entropy").metrics


def test_the_implementation_of_attention_may_be_chosen(language_model: str, reward_model: str) -> None:
    eager = engine_of(language_model, attention="eager")
    plain: Any = plain_model(eager.model)
    assert plain.config._attn_implementation == "eager"
    wanted = engine_of(language_model).forward_backward(supervised(3), "cross_entropy").metrics["loss:sum"]
    assert eager.forward_backward(supervised(3), "cross_entropy").metrics["loss:sum"] == pytest.approx(wanted, abs=1e-5)
    with pytest.raises(RequestFailedError, match=r"can't be loaded as seq_cls.*unheard_of"):
        Engine(ModelSpec(reward_model, kind="seq_cls"), EngineSettings(device="cpu", attention="unheard_of"))


@pytest.mark.parametrize("name", ["tpu:0", "cuda:99"])
def test_a_device_that_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(RequestFailedError, match=f"device='{name}'") as caught:
        chosen_device(name)
    assert caught.value.category == "server"
    assert chosen_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_a_reward_model_of_bfloat16_keeps_its_head_in_float32(tmp_path: Path) -> None:
    engine = Engine(
        ModelSpec(str(write_reward_model(tmp_path)), kind="seq_cls"), EngineSettings(device="cpu", weights="bfloat16")
    )
    weights = engine.weights()
    assert weights["score.weight"].dtype == torch.float32
    assert weights["model.embed_tokens.weight"].dtype == torch.bfloat16


@pytest.mark.gpu
@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_a_gpu_trains_as_the_cpu_does(language_model: str, lora: LoraConfig | None, tmp_path: Path) -> None:
    cpu, gpu = engine_of(language_model, lora), engine_of(language_model, lora, device="cuda", autocast="float32")
    wanted, got = (engine.forward_backward(sampled(4), "ppo").metrics for engine in (cpu, gpu))
    assert got == pytest.approx(dict(wanted), rel=1e-3, abs=1e-3)
    gpu.optim_step(AdamParams(1e-3))
    gpu.save(tmp_path / "checkpoint", optimizer=True)
    gpu.load(tmp_path / "checkpoint", optimizer=True)
    assert {value.device.type for value in gpu.weights().values()} == {"cpu"}

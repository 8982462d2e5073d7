"""Which layers get adapters, in several families of models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.engine.engine import Engine
from reward_loop.rinker.engine.lora import lora_targets
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.types import AdamParams, LoraConfig, ModelSpec
from tests.rinker.engine.models import supervised, write_language_model, write_llama

ATTENTION = ["k_proj", "o_proj", "q_proj", "v_proj"]
MLP = ["down_proj", "gate_proj", "up_proj"]


@pytest.fixture(scope="module", params=["qwen2", "llama"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> nn.Module:
    write = {"qwen2": write_language_model, "llama": write_llama}[request.param]
    loaded: nn.Module = AutoModelForCausalLM.from_pretrained(write(tmp_path_factory.mktemp(request.param)))
    return loaded


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ({}, [*ATTENTION, *MLP, "lm_head"]),
        ({"train_mlp": False}, [*ATTENTION, "lm_head"]),
        ({"train_attn": False, "train_unembed": False}, MLP),
        ({"train_attn": False, "train_mlp": False}, ["lm_head"]),
    ],
)
def test_attention_mlp_and_unembedding_are_chosen_apart(model: nn.Module, chosen: dict[str, bool], names: list[str]) -> None:
    assert lora_targets(model, "causal_lm", LoraConfig(**chosen)) == sorted(names)


def test_of_a_reward_model_the_head_is_no_target(model: nn.Module) -> None:
    assert lora_targets(model, "seq_cls", LoraConfig()) == sorted([*ATTENTION, *MLP])


def test_where_a_name_is_in_both_groups_the_whole_paths_are_given() -> None:
    build: Any = GPT2LMHeadModel  # untyped
    gpt2 = build(GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=16, n_positions=8))
    assert lora_targets(gpt2, "causal_lm", LoraConfig(train_mlp=False)) == [
        "transformer.h.0.attn.c_attn",
        "transformer.h.0.attn.c_proj",
    ]


def test_a_choice_of_nothing_is_refused(model: nn.Module) -> None:
    nothing = LoraConfig(train_attn=False, train_mlp=False, train_unembed=False)
    with pytest.raises(RequestFailedError, match="the LoRA trains no layer; set train_attn") as caught:
        lora_targets(model, "causal_lm", nothing)
    assert caught.value.category == "user"


class Strange(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mixer = nn.Linear(4, 4)


def test_a_model_of_unknown_layers_is_refused_with_their_names() -> None:
    with pytest.raises(RequestFailedError, match=r"no layer that is known as attention or mlp .*linear layers are called mixer"):
        lora_targets(Strange(), "causal_lm", LoraConfig())


@pytest.mark.parametrize(("rank", "alpha"), [(0, 32.0), (-1, 32.0), (4, 0.0), (4, float("nan"))])
def test_a_rank_that_makes_no_sense_is_refused(language_model: str, rank: int, alpha: float) -> None:
    with pytest.raises(RequestFailedError, match="both must be positive"):
        Engine(ModelSpec(language_model, lora=LoraConfig(rank=rank, alpha=alpha)), EngineSettings(device="cpu"))


def adapters(path: str, **lora: Any) -> dict[str, torch.Tensor]:
    engine = Engine(ModelSpec(path, lora=LoraConfig(rank=4, **lora)), EngineSettings(device="cpu"))
    return {name: value.detach() for name, value in engine.model.named_parameters() if value.requires_grad}


def test_its_seed_draws_the_adapters_and_the_callers_numbers_are_left_alone(language_model: str) -> None:
    before = torch.get_rng_state()
    first, again, other = (adapters(language_model, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[name], value) for name, value in again.items())
    assert any(not torch.equal(first[name], value) for name, value in other.items())


def test_tied_embeddings_stay_one_weight(tmp_path: Path) -> None:
    engine = Engine(
        ModelSpec(str(write_language_model(tmp_path, tie_word_embeddings=True)), lora=LoraConfig(rank=4)),
        EngineSettings(device="cpu"),
    )
    assert not any("lm_head" in name for name, value in engine.model.named_parameters() if value.requires_grad)
    engine.forward_backward(supervised(2), "cross_entropy")
    engine.optim_step(AdamParams(1e-2))
    weights = engine.weights()
    assert torch.equal(weights["lm_head.weight"], weights["model.embed_tokens.weight"])


def test_merged_weights_compute_what_the_adapters_do_and_leave_them(language_model: str) -> None:
    engine = Engine(ModelSpec(language_model, lora=LoraConfig(rank=4)), EngineSettings(device="cpu"))
    for _ in range(3):
        engine.forward_backward(supervised(4), "cross_entropy")
        engine.optim_step(AdamParams(1e-3))
    before = {name: value.clone() for name, value in engine.model.state_dict().items()}
    merged = engine.weights()
    assert all(torch.equal(before[name], value) for name, value in engine.model.state_dict().items())
    plain = AutoModelForCausalLM.from_pretrained(language_model)
    name = "model.layers.1.mlp.up_proj"
    change = before[f"base_model.model.{name}.lora_B.default.weight"] @ before[f"base_model.model.{name}.lora_A.default.weight"]
    wanted = plain.state_dict()[f"{name}.weight"] + 32 / 4 * change
    torch.testing.assert_close(merged[f"{name}.weight"], wanted, atol=1e-6, rtol=1e-6)
    assert change.abs().max() > 1e-4
    plain.load_state_dict(merged)
    ids = torch.tensor([[2, 3, 4, 5]])
    torch.testing.assert_close(plain(ids).logits, engine.model(input_ids=ids).logits, atol=1e-6, rtol=1e-6)

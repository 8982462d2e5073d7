"""Merging: the plain weights compute what the adapted model does, and the adapted model doesn't notice."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import Qwen2ForCausalLM

from reward_loop.errors import TrainingError, WeightSyncError
from reward_loop.sync.lora import merge_and_reinit, merged_state_dict
from reward_loop.sync.selection import selected
from reward_loop.sync.training_mode import RewardModelTrainingMode
from tests.sync.models import adapted_model, plain_model, scores, shake, tiny_config

CONFIGS: dict[str, dict[str, Any]] = {
    "some layers and the head": {},
    "every layer, rank-stabilised": {"target_modules": "all-linear", "task_type": "SEQ_CLS", "use_rslora": True},
    "dora": {"target_modules": "all-linear", "task_type": "SEQ_CLS", "use_dora": True},
    "embeddings and an adapted head": {"target_modules": ["embed_tokens", "score"], "modules_to_save": None},
    "single tokens": {"trainable_token_indices": [1, 4]},
    "biases": {"target_modules": ["q_proj", "v_proj"], "lora_bias": True},
}


def contents(model: nn.Module) -> dict[str, torch.Tensor]:
    """Copies of everything that a model holds."""
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    """Whether two state dicts are equal, bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def served(weights: dict[str, torch.Tensor], dtype: torch.dtype = torch.float32) -> Any:
    """The plain model with these weights, as a server would load it: every one of its own, and no other."""
    model = plain_model(seed=9).to(dtype)
    model.load_state_dict(weights, strict=True)
    return model


def tied_policy() -> Any:
    """A language model with one tensor for its embeddings and its last layer."""
    build: Any = Qwen2ForCausalLM  # untyped
    return build(tiny_config(tie_word_embeddings=True))


def layer(weight: torch.Tensor, **options: Any) -> Any:
    """A model of one adapted layer without a bias."""
    plain = nn.Sequential(nn.Linear(weight.shape[1], weight.shape[0], bias=False))
    plain[0].weight.data = weight
    config: dict[str, Any] = {"target_modules": ["0"], "r": 4, "lora_alpha": 8}
    return get_peft_model(plain, LoraConfig(**(config | options)))


@pytest.mark.parametrize(("rank_stabilised", "scale"), [(False, 8 / 4), (True, 8 / math.sqrt(4))])
def test_a_merged_weight_is_the_weight_and_the_scaled_product_of_the_factors(rank_stabilised: bool, scale: float) -> None:
    weight = torch.randn(3, 5)
    model = layer(weight.clone(), use_rslora=rank_stabilised)
    shake(model)
    a, b = (model.get_parameter(f"base_model.model.0.lora_{factor}.default.weight") for factor in "AB")
    merged = merged_state_dict(model)
    assert list(merged) == ["0.weight"]
    assert torch.allclose(merged["0.weight"], weight + scale * b @ a, atol=1e-6)


@pytest.mark.parametrize("options", CONFIGS.values(), ids=CONFIGS.keys())
def test_the_merged_weights_compute_what_the_adapted_model_does_and_leave_it_as_it_was(options: dict[str, Any]) -> None:
    model = adapted_model(**options)
    expected, before = scores(model), contents(model)
    merged = merged_state_dict(model)
    assert (expected - scores(plain_model())).abs().max() > 0.01  # it was trained
    assert (scores(served(merged)) - expected).abs().max() < 1e-5
    assert same(contents(model), before)
    assert torch.equal(scores(model), expected)
    assert list(selected(merged, RewardModelTrainingMode.LORA, strict=True)) == list(merged)


def test_many_publishes_in_half_precision_leave_nothing_behind() -> None:
    # Adding and subtracting in bfloat16 gives another weight each time; PEFT's own unmerge does that.
    model = adapted_model(dtype=torch.bfloat16)
    before = contents(model)
    first = merged_state_dict(model)
    for _ in range(30):
        assert same(merged_state_dict(model), first)
    assert same(contents(model), before)
    assert first["model.layers.0.self_attn.q_proj.weight"].dtype is torch.bfloat16
    drifting = adapted_model(dtype=torch.bfloat16)
    for _ in range(30):
        drifting.merge_adapter()
        drifting.unmerge_adapter()
    assert not same(contents(drifting), before)


def test_a_merged_half_precision_weight_is_rounded_once() -> None:
    model = layer(torch.randn(64, 64).bfloat16())
    shake(model)
    a, b = (model.get_parameter(f"base_model.model.0.lora_{factor}.default.weight").float() for factor in "AB")
    exact = model.get_parameter("base_model.model.0.base_layer.weight").float() + 2 * b @ a
    assert torch.equal(merged_state_dict(model)["0.weight"], exact.bfloat16())


def test_parameters_optimizer_and_gradients_are_the_same_objects_afterwards() -> None:
    model = adapted_model()
    optimizer = torch.optim.AdamW([value for value in model.parameters() if value.requires_grad], lr=0.01)
    train(model, optimizer)
    parameters = {name: (id(value), value.data_ptr(), value.requires_grad) for name, value in model.named_parameters()}
    twin = merged_state_dict(model)
    assert {name: (id(value), value.data_ptr(), value.requires_grad) for name, value in model.named_parameters()} == parameters
    train(model, optimizer)
    assert not same(merged_state_dict(model), twin)  # training goes on, and what was published before is a copy
    assert (scores(served(twin)) - scores(model)).abs().max() > 1e-4


def test_the_head_that_is_published_is_the_trained_one() -> None:
    model = adapted_model()
    wrapper = model.get_submodule("base_model.model.score")
    head = merged_state_dict(model)["score.weight"]
    assert torch.equal(head, wrapper.modules_to_save["default"].weight)
    assert not torch.equal(head, wrapper.original_module.weight)


def test_of_several_adapters_the_active_one_is_merged() -> None:
    model = adapted_model()
    model.add_adapter("other", LoraConfig(r=2, target_modules=["v_proj"]))
    first = scores(model)
    model.set_adapter("other")
    shake(model)
    second = scores(model)
    assert (scores(served(merged_state_dict(model))) - second).abs().max() < 1e-5  # with the original head: it has none itself
    model.set_adapter("default")
    assert (scores(served(merged_state_dict(model))) - first).abs().max() < 1e-5
    assert (first - second).abs().max() > 0.01


def test_two_active_adapters_are_merged_together() -> None:
    model = adapted_model(modules_to_save=None)
    model.add_adapter("other", LoraConfig(r=2, target_modules=["v_proj", "q_proj"]))
    model.set_adapter("other")
    shake(model)
    model.base_model.set_adapter(["default", "other"])
    assert (scores(served(merged_state_dict(model))) - scores(model)).abs().max() < 1e-5


def test_a_model_that_is_merged_already_gives_what_it_computes() -> None:
    model = adapted_model()
    expected = scores(model)
    model.merge_adapter()
    merged = merged_state_dict(model)
    model.unmerge_adapter()
    assert (scores(served(merged)) - expected).abs().max() < 1e-5


def test_wrapped_models_give_the_same_names() -> None:
    model = adapted_model()
    assert same(merged_state_dict(torch.compile(model, backend="eager")), merged_state_dict(model))  # type: ignore[arg-type]


def test_frozen_weights_are_not_copied_and_the_others_are() -> None:
    model = adapted_model()
    merged = merged_state_dict(model)
    own = {value.data_ptr() for value in model.state_dict().values()}
    copied = {name for name, value in merged.items() if value.data_ptr() not in own}
    adapted = {name for name in merged if "q_proj.weight" in name or "down_proj.weight" in name}
    # The bias of an adapted layer comes with it.
    assert copied == adapted | {name for name in merged if "q_proj.bias" in name} | {"score.weight"}
    moved = merged_state_dict(model, device="meta")
    assert all(value.is_meta for value in moved.values())


def test_a_merge_that_fails_leaves_the_model_as_it_was() -> None:
    model = adapted_model()
    before = contents(model)
    factor = model.get_submodule("base_model.model.model.layers.1.mlp.down_proj").lora_B["default"]
    whole = factor.weight.data
    factor.weight.data = whole[:3]
    with pytest.raises(WeightSyncError, match=r"layers\.1\.mlp\.down_proj can't be merged"):
        merged_state_dict(model)
    factor.weight.data = whole
    assert same(contents(model), before)
    assert not any(getattr(module, "merged", False) for module in model.modules())


def test_a_model_without_adapters_is_an_error() -> None:
    with pytest.raises(WeightSyncError, match="no adapter of PEFT; publish its state_dict"):
        merged_state_dict(plain_model())


def test_a_model_after_merge_and_unload_is_published_as_it_is() -> None:
    model = adapted_model()
    expected = scores(model)
    plain = model.merge_and_unload()
    with pytest.raises(WeightSyncError, match="no adapter"):
        merged_state_dict(plain)
    assert (scores(served(selected(plain.state_dict()))) - expected).abs().max() < 1e-5


def test_disabled_adapters_are_an_error() -> None:
    model = adapted_model()
    with model.disable_adapter(), pytest.raises(WeightSyncError, match="disabled"):
        merged_state_dict(model)


def test_a_quantised_body_is_an_error() -> None:
    model = layer(torch.randn(4, 4))
    base = model.get_submodule("base_model.model.0.base_layer")
    base.weight = nn.Parameter(torch.ones(4, 4, dtype=torch.int8), requires_grad=False)
    with pytest.raises(WeightSyncError, match=r"0 \(Linear\) is quantised"):
        merged_state_dict(model)


def test_an_adapter_on_one_of_two_tied_weights_is_an_error() -> None:
    model = tied_policy()
    with pytest.warns(UserWarning, match="tie"):
        adapted = get_peft_model(model, LoraConfig(target_modules=["embed_tokens"]))
    with pytest.raises(WeightSyncError, match=r"are one weight, and only .*embed_tokens has an adapter"):
        merged_state_dict(adapted)


def test_tied_weights_without_an_adapter_stay_tied() -> None:
    tied = get_peft_model(tied_policy(), LoraConfig(target_modules=["q_proj"]))
    merged = merged_state_dict(tied)
    assert "lm_head.weight" in merged
    assert "lm_head.weight" not in selected(merged, RewardModelTrainingMode.LORA, generative=True)


def train(model: Any, optimizer: torch.optim.Optimizer) -> None:
    """Take one step."""
    optimizer.zero_grad()
    model(input_ids=torch.tensor([[3, 1, 4]])).logits.sum().backward()
    optimizer.step()


def trained() -> tuple[Any, torch.optim.AdamW]:
    """An adapted model and its optimizer after three steps."""
    model = adapted_model()
    optimizer = torch.optim.AdamW([value for value in model.parameters() if value.requires_grad], lr=0.01, weight_decay=0.1)
    for _ in range(3):
        train(model, optimizer)
    return model, optimizer


def test_merging_for_good_changes_no_score_and_the_adapters_begin_at_nothing() -> None:
    model, optimizer = trained()
    expected, merged = scores(model), merged_state_dict(model)
    again, same_optimizer = merge_and_reinit(model, optimizer)
    assert again is model
    assert same_optimizer is optimizer
    assert (scores(model) - expected).abs().max() < 1e-5
    with model.disable_adapter():
        base = model.get_parameter("base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight")
        assert torch.equal(base, merged["model.layers.0.self_attn.q_proj.weight"])
    for name, value in model.named_parameters():
        if "lora_B" in name:
            assert not value.any()
        if "lora_A" in name:
            assert value.any()


def test_the_optimizer_forgets_the_old_adapters_and_trains_the_new_ones() -> None:
    model, optimizer = trained()
    settings = [{key: value for key, value in group.items() if key != "params"} for group in optimizer.param_groups]
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5**step)
    head = model.get_submodule("base_model.model.score").modules_to_save["default"].weight
    merge_and_reinit(model, optimizer)
    assert list(optimizer.state) == [head]
    assert all(value.grad is None for name, value in model.named_parameters() if "lora_" in name)
    before = contents(model)
    train(model, optimizer)
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == 0.005
    after = contents(model)
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert {name for name in after if "lora_B" in name} <= changed
    assert not any("base_layer" in name for name in changed)
    again = [
        {key: value for key, value in group.items() if key not in ("params", "initial_lr")} for group in optimizer.param_groups
    ]
    assert [group | {"lr": 0.01} for group in again] == settings


def test_the_same_seed_gives_the_same_adapters_and_leaves_the_random_numbers_alone() -> None:
    def fresh(seed: int) -> torch.Tensor:
        model, optimizer = trained()
        state = torch.get_rng_state()
        merge_and_reinit(model, optimizer, seed=seed)
        assert torch.equal(torch.get_rng_state(), state)
        factor: torch.Tensor = model.get_parameter("base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight")
        return factor.detach()

    assert torch.equal(fresh(1), fresh(1))
    assert not torch.equal(fresh(1), fresh(2))


def test_merging_for_good_refuses_what_it_would_break_before_it_changes_anything() -> None:
    model, optimizer = trained()
    before = contents(model)
    with pytest.raises(TrainingError, match="trains none of the model's 8 adapter weights"):
        merge_and_reinit(model, torch.optim.AdamW(plain_model().parameters()))
    model.merge_adapter()
    with pytest.raises(TrainingError, match="merged already"):
        merge_and_reinit(model, optimizer)
    model.unmerge_adapter()
    tokens = adapted_model(trainable_token_indices=[1])
    with pytest.raises(TrainingError, match="adapted by TrainableTokensLayer"):
        merge_and_reinit(tokens, torch.optim.AdamW(tokens.parameters()))
    model.add_adapter("other", LoraConfig(r=2, target_modules=["q_proj"]))
    with pytest.raises(TrainingError, match="other adapters, other, which fit the body as it is"):
        merge_and_reinit(model, optimizer)
    after = contents(model)
    assert all(torch.allclose(after[name], before[name], atol=1e-6) for name in before)

"""Which updates fit the served model, and what is said of those that don't."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from reward_loop.errors import WeightSyncError
from reward_loop.serving.inside.known_weights import KnownWeight, KnownWeights
from reward_loop.sync.manifest import TensorSpec

FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
ATTENTION = [f"model.layers.0.self_attn.{part}_proj" for part in "qkv"]
NAMES = [
    "model.embed_tokens.weight",
    *[f"{name}.{kind}" for name in ATTENTION for kind in ("weight", "bias")],
    "model.layers.0.self_attn.o_proj.weight",
    "model.layers.0.mlp.gate_proj.weight",
    "model.layers.0.mlp.up_proj.weight",
    "model.layers.0.input_layernorm.weight",
    "model.norm.weight",
    "model.norm.bias",
    "score.weight",
    "score.bias",
]


def known(names: Iterable[str] = NAMES, *, ignored: Iterable[str] = ()) -> KnownWeights:
    """Return a model with these weights."""
    return KnownWeights({name: KnownWeight("float32", (4, 2)) for name in names}, FUSED, frozenset(ignored))


def update(*names: str, dtype: str = "float32", shape: tuple[int, ...] = (4, 2)) -> list[TensorSpec]:
    """Return an update of these."""
    return [TensorSpec(name, dtype, shape) for name in names]


def refusal(tensors: list[TensorSpec], mode: str = "lora", *, model: KnownWeights | None = None, dropped: bool = False) -> str:
    """Return why an update is refused."""
    with pytest.raises(WeightSyncError) as refused:
        (model or known()).check(tensors, mode, dropped=dropped)
    return str(refused.value)


@pytest.mark.parametrize("mode", ["full", "lora"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_every_weight_fits(mode: str, dtype: str) -> None:
    known().check(update(*NAMES, dtype=dtype), mode, dropped=mode == "full")


def test_the_head_alone_fits() -> None:
    known().check(update("score.weight"), "head_only")
    known().check(update("score.weight", "score.bias"), "head_only")
    known().check(update("score.bias"), "head_only")  # put in place by itself


def test_a_layer_may_come_without_its_biases() -> None:
    known().check(update(*[f"{name}.weight" for name in ATTENTION], "model.norm.weight"), "lora")


def test_an_unknown_name_comes_with_the_nearest_one() -> None:
    assert "scores.weight is unknown (the nearest name is score.weight)" in refusal(update("scores.weight"))
    assert "a is unknown" in refusal(update("a"), model=known([]))


def test_a_wrong_shape_is_told_with_the_right_one() -> None:
    assert "score.weight has the shape (2, 4), the served one (4, 2)" in refusal(update("score.weight", shape=(2, 4)))


def test_a_quantised_weight_is_refused() -> None:
    model = KnownWeights({"score.weight": KnownWeight("float8_e4m3fn", (4, 2))}, FUSED)
    assert "score.weight is served as float8_e4m3fn" in refusal(update("score.weight"), model=model)


@pytest.mark.parametrize(
    ("came", "missing"),
    [
        ([f"{ATTENTION[0]}.weight"], f"{ATTENTION[1]}.weight, {ATTENTION[2]}.weight"),
        (["model.layers.0.mlp.up_proj.weight"], "model.layers.0.mlp.gate_proj.weight"),
        ([f"{name}.weight" for name in ATTENTION] + [f"{ATTENTION[0]}.bias"], f"{ATTENTION[1]}.bias, {ATTENTION[2]}.bias"),
        ([f"{name}.bias" for name in ATTENTION], ", ".join(f"{name}.weight" for name in ATTENTION)),
        (["model.norm.bias"], "model.norm.weight"),
    ],
)
def test_a_part_of_a_layer_is_refused(came: list[str], missing: str) -> None:
    assert f"came without {missing}" in refusal(update(*came))


def test_the_experts_of_a_layer_come_together() -> None:
    names = [f"model.layers.0.mlp.experts.{expert}.{part}_proj.weight" for expert in (0, 1) for part in ("gate", "up", "down")]
    model = known([*NAMES, *names])
    model.check(update(*names), "lora")
    assert "model.layers.0.mlp.experts is loaded as a whole" in refusal(update(*names[:3]), model=model)


def test_a_full_update_without_a_weight_is_refused() -> None:
    assert "model.norm.weight is missing" in refusal(update(*[name for name in NAMES if name != "model.norm.weight"]), "full")


def test_a_head_only_update_with_backbone_weights_is_refused() -> None:
    why = refusal(update("score.weight", "model.norm.weight"), "head_only")
    assert "model.norm.weight belongs to the backbone" in why
    assert "score.weight" not in why


def test_an_unknown_mode_is_refused_with_the_known_ones() -> None:
    assert "give one of head_only, lora, full" in refusal(update("score.weight"), "head-only")


@pytest.mark.parametrize("mode", ["head_only", "lora"])
def test_only_a_full_update_brings_dropped_weights_back(mode: str) -> None:
    assert "only a full update" in refusal(update("score.weight"), mode, dropped=True)


def test_ten_reasons_are_named_and_the_others_counted() -> None:
    why = refusal(update(*[f"w{number}" for number in range(25)]))
    assert why.count("is unknown") == 10
    assert why.endswith("and 15 more")


def test_a_weight_that_another_one_stands_for_may_come_and_is_not_loaded() -> None:
    model = known([*NAMES, "lm_head.weight"], ignored=["lm_head.weight"])
    tensors = update(*NAMES, "lm_head.weight")
    model.check(tensors, "full")
    model.check(update(*NAMES), "full")
    assert model.loaded(tensors) == NAMES


@pytest.mark.parametrize(
    ("names", "heads"),
    [
        (
            ["model.layers.0.a.weight", "model.embed.weight", "score.0.weight", "score.2.weight"],
            ["score.0.weight", "score.2.weight"],
        ),
        (["bert.encoder.layer.0.a.weight", "bert.pooler.dense.weight", "classifier.weight"], ["classifier.weight"]),
        (["layers.0.a.weight", "layers.1.a.weight", "norm.weight", "v_head.summary.weight"], ["v_head.summary.weight"]),
        (["model.layers.0.a.weight", "lm_head.weight"], ["lm_head.weight"]),
    ],
)
def test_the_head_is_what_lies_beside_the_layers(names: list[str], heads: list[str]) -> None:
    assert [name for name in names if known(names).is_head(name)] == heads

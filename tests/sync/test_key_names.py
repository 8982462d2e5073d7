"""Names of weights: whatever wrapped the model that is trained, the server gets the names of its checkpoint."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from transformers import Qwen2Model

from reward_loop.errors import WeightSyncError
from reward_loop.sync.key_names import HEADS, is_adapter, is_head, normalised
from tests.sync.models import plain_model, tiny_config

Q_PROJ = "model.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("name", "served"),
    [
        (Q_PROJ, Q_PROJ),
        ("score.weight", "score.weight"),
        ("lm_head.weight", "lm_head.weight"),
        ("bert.encoder.layer.0.attention.self.query.weight", "bert.encoder.layer.0.attention.self.query.weight"),
        # PEFT
        ("base_model.model." + Q_PROJ, Q_PROJ),
        ("base_model.model.base_model.model." + Q_PROJ, Q_PROJ),
        ("base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight", Q_PROJ),
        ("base_model.model.score.modules_to_save.default.weight", "score.weight"),
        ("base_model.model.score.modules_to_save.default.0.weight", "score.0.weight"),
        ("base_model.model.score.modules_to_save.weight", "score.weight"),
        ("base_model.model.classifier.modules_to_save.default.bias", "classifier.bias"),
        ("base_model.model.model.embed_tokens.token_adapter.base_layer.weight", "model.embed_tokens.weight"),
        # DDP, FSDP, activation checkpointing, torch.compile
        ("module." + Q_PROJ, Q_PROJ),
        ("module._orig_mod." + Q_PROJ, Q_PROJ),
        ("_orig_mod.module." + Q_PROJ, Q_PROJ),
        ("model.layers.0._orig_mod.self_attn.q_proj.weight", Q_PROJ),
        ("_fsdp_wrapped_module.model.layers.0._fsdp_wrapped_module._checkpoint_wrapped_module.self_attn.q_proj.weight", Q_PROJ),
        ("_fsdp_wrapped_module.base_model.model.score._fsdp_wrapped_module.modules_to_save.default.weight", "score.weight"),
        # a model inside a model, and one that was taken out of its own
        ("model.model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"),
        ("model.score.weight", "score.weight"),
        ("model.classifier.bias", "classifier.bias"),
        ("model.lm_head.weight", "lm_head.weight"),
        ("layers.0.mlp.up_proj.weight", "model.layers.0.mlp.up_proj.weight"),
        # TRL
        ("v_head.summary.weight", "v_head.weight"),
        ("v_head.summary.bias", "v_head.bias"),
        ("pretrained_model." + Q_PROJ, Q_PROJ),
    ],
)
def test_every_wrapping_ends_in_the_name_of_the_checkpoint(name: str, served: str) -> None:
    assert normalised([name]) == {name: served}


def test_the_stale_head_that_peft_keeps_is_left_out_and_the_trained_one_gets_its_name() -> None:
    stale, trained = "base_model.model.score.original_module.weight", "base_model.model.score.modules_to_save.default.weight"
    assert normalised([stale, trained]) == {trained: "score.weight"}


def test_only_whole_segments_are_taken_out() -> None:
    names = ["model.base_layer_norm.weight", "model.module.weight", "model.summary.weight", "model.my_original_module.weight"]
    assert list(normalised(names).values()) == names


def test_a_body_that_was_saved_alone_gets_its_outer_model_back_and_a_head_does_not() -> None:
    names = ["embed_tokens.weight", "layers.0.mlp.up_proj.weight", "norm.weight", "score.weight", "rank.weight"]
    assert list(normalised(names, heads=["rank"]).values()) == [
        "model.embed_tokens.weight",
        "model.layers.0.mlp.up_proj.weight",
        "model.norm.weight",
        "score.weight",
        "rank.weight",
    ]
    assert list(normalised(["norm.weight"]).values()) == ["norm.weight"]  # nothing says that it is a body's


def test_two_weights_with_one_name_are_an_error() -> None:
    with pytest.raises(WeightSyncError, match=r"model\.score\.weight and score\.weight are both score\.weight"):
        normalised(["model.score.weight", "score.weight"])


def test_of_several_adapters_with_a_head_of_their_own_one_must_be_named() -> None:
    heads = [f"score.modules_to_save.{adapter}.weight" for adapter in ("default", "other")]
    with pytest.raises(WeightSyncError, match="give the adapter that is served"):
        normalised(heads)
    assert normalised(heads, adapter="other") == {heads[1]: "score.weight"}


def test_flattened_weights_are_an_error_with_its_remedy() -> None:
    with pytest.raises(WeightSyncError, match="FULL_STATE_DICT"):
        normalised(["_fsdp_wrapped_module._flat_param"])


@pytest.mark.parametrize(
    ("name", "adapter"),
    [
        ("model.layers.0.self_attn.q_proj.lora_A.default.weight", True),
        ("model.embed_tokens.lora_embedding_B.default", True),
        ("model.layers.0.self_attn.q_proj.lora_magnitude_vector.default.weight", True),
        ("model.embed_tokens.token_adapter.trainable_tokens_delta.default", True),
        ("model.explora_net.weight", False),
        (Q_PROJ, False),
    ],
)
def test_weights_of_adapters_are_known_by_their_names(name: str, adapter: bool) -> None:
    assert is_adapter(name) is adapter


@pytest.mark.parametrize(
    "name", [f"{head}.weight" for head in HEADS] + ["score.0.bias", "rm.score.weight", "classifier.out_proj.bias"]
)
def test_heads_are_found(name: str) -> None:
    assert is_head(name)


@pytest.mark.parametrize(
    "name",
    [
        "lm_head.weight",
        "model.score_norm.weight",
        "model.underscore.weight",
        "model.layers.0.self_attn.score.weight",  # as whole as a head's, but in a layer
        "classifier_dropout.weight",
    ],
)
def test_a_part_of_a_segment_makes_no_head(name: str) -> None:
    assert not is_head(name)


def test_patterns_name_segments_with_and_without_a_dot_at_the_end() -> None:
    assert is_head("score.weight", ["score."])
    assert is_head("score.weight", ["model.score."])
    assert is_head("heads.quality.weight", ["heads.quality"])
    assert not is_head("heads.style.weight", ["heads.quality"])
    assert is_head("lm_head.weight", ["lm_head."])  # on request


@pytest.mark.parametrize("pattern", ["", ".", "score..weight", ".score"])
def test_a_pattern_that_names_no_segment_is_an_error(pattern: str) -> None:
    with pytest.raises(WeightSyncError, match="names no head"):
        is_head("score.weight", [pattern])


def test_real_wrappers_around_a_real_model_give_the_names_of_the_plain_one() -> None:
    plain = list(plain_model().state_dict())
    adapted = get_peft_model(plain_model(), LoraConfig(target_modules=["q_proj", "score"], trainable_token_indices=[1]))
    saving = get_peft_model(
        plain_model(), LoraConfig(target_modules="all-linear", modules_to_save=["score"], task_type="SEQ_CLS")
    )
    compiled = torch.compile(plain_model(), backend="eager")
    inside = plain_model()
    inside.model.layers[0] = checkpoint_wrapper(inside.model.layers[0])
    for model in (adapted, saving, compiled, inside, _Wrapped()):
        assert isinstance(model, nn.Module)
        names = [name for name in normalised(model.state_dict()).values() if not is_adapter(name)]
        assert sorted(names) == sorted(plain)
        parameters = [name for name in normalised(dict(model.named_parameters())).values() if not is_adapter(name)]
        assert sorted(parameters) == sorted(plain)
    body = Qwen2Model(tiny_config())
    assert set(normalised(body.state_dict()).values()) == set(plain) - {"score.weight"}


class _Wrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = plain_model()


WRAPPERS = ["module", "base_layer", "_orig_mod", "modules_to_save", "base_model", "original_module", "v_head", "summary"]
SEGMENTS = st.sampled_from(["model", "layers", "0", "score", "lora_A", *WRAPPERS])
NAMES = st.lists(SEGMENTS, max_size=5).map(lambda path: ".".join([*path, "proj", "weight"]))


@example(["v_head.summary.summary.proj.weight"])
@given(st.lists(NAMES, max_size=4, unique=True))
def test_a_normal_name_stays_and_no_two_weights_share_one(names: list[str]) -> None:
    try:
        served = normalised(names)
    except WeightSyncError:
        return
    assert len(set(served.values())) == len(served)
    assert list(normalised(served.values()).values()) == list(served.values())

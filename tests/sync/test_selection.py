"""What an update carries: the head, or everything that is served, and nothing that a server can't take."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import nn

from reward_loop.errors import WeightSyncError
from reward_loop.sync.manifest import Manifest, TensorSpec
from reward_loop.sync.selection import selected
from reward_loop.sync.training_mode import RewardModelTrainingMode
from tests.sync.models import adapted_model, plain_model

HEAD_ONLY, LORA, FULL = RewardModelTrainingMode.HEAD_ONLY, RewardModelTrainingMode.LORA, RewardModelTrainingMode.FULL


def state(**more: object) -> dict[str, object]:
    """A small state dict with a body and a head; `more` by names with two underscores for a dot."""
    body = {"model.layers.0.mlp.up_proj.weight": torch.ones(4, 2), "model.norm.weight": torch.ones(2)}
    return {**body, "score.weight": torch.zeros(1, 2), **{name.replace("__", "."): value for name, value in more.items()}}


def refused(state_dict: Mapping[str, object], mode: RewardModelTrainingMode = FULL) -> str:
    """The message of the error that publishing this ends in."""
    with pytest.raises(WeightSyncError) as caught:
        selected(state_dict, mode)
    return str(caught.value)


@pytest.mark.parametrize("mode", [LORA, FULL])
def test_lora_and_full_take_every_weight_in_the_order_of_the_state_dict(mode: RewardModelTrainingMode) -> None:
    taken = selected(state(), mode)
    assert list(taken) == list(state())


def test_head_only_takes_the_head_alone() -> None:
    assert list(selected(state(), HEAD_ONLY)) == ["score.weight"]


def test_head_only_takes_every_part_of_a_head() -> None:
    parts = {
        "classifier.dense.weight": torch.ones(2, 2),
        "classifier.out_proj.bias": torch.ones(1),
        "encoder.weight": torch.ones(1),
    }
    assert list(selected(parts, HEAD_ONLY)) == ["classifier.dense.weight", "classifier.out_proj.bias"]


def test_a_strict_head_only_refuses_a_body_and_says_how_much_of_it_there_is() -> None:
    with pytest.raises(WeightSyncError, match=r"holds 2 weights of the body .*model\.norm\.weight.*strict=False"):
        selected(state(), HEAD_ONLY, strict=True)
    assert list(selected({"score.weight": torch.ones(1)}, HEAD_ONLY, strict=True)) == ["score.weight"]


def test_head_only_without_a_head_is_an_error() -> None:
    assert "needs a head" in refused({"model.score_norm.weight": torch.ones(1), "lm_head.weight": torch.ones(1)}, HEAD_ONLY)


def test_a_head_of_another_name_is_named_by_its_pattern() -> None:
    weights = {"model.norm.weight": torch.ones(2), "rank.weight": torch.ones(1, 2)}
    assert list(selected(weights, HEAD_ONLY, ["rank."])) == ["rank.weight"]
    assert "name it by head_name_patterns" in refused(weights, HEAD_ONLY)


def test_a_full_update_of_the_head_alone_is_an_error() -> None:
    assert "publish in the mode head_only" in refused({"score.weight": torch.ones(1)})
    assert "publish in the mode head_only" in refused({"score.weight": torch.ones(1)}, LORA)


def test_a_full_update_without_a_head_is_an_error_unless_the_model_is_generative() -> None:
    body = {"model.norm.weight": torch.ones(2), "lm_head.weight": torch.ones(3, 2)}
    assert "generative=True" in refused(body)
    assert list(selected(body, generative=True)) == list(body)


@pytest.mark.parametrize("mode", [LORA, FULL])
def test_adapters_that_are_not_merged_are_an_error_that_shows_the_remedy(mode: RewardModelTrainingMode) -> None:
    # Without the adapters' own weights it is the body as it was before training that would reach the server.
    message = refused(adapted_model().state_dict(), mode)
    assert "8 weights are adapters that aren't merged" in message
    assert "merged_state_dict(model)" in message


def test_the_trained_head_of_a_model_with_adapters_can_be_published_alone() -> None:
    model = adapted_model()
    head = selected(model.state_dict(), HEAD_ONLY)
    assert list(head) == ["score.weight"]
    trained = model.get_submodule("base_model.model.score").modules_to_save["default"].weight
    assert torch.equal(head["score.weight"], trained)
    assert not torch.equal(head["score.weight"], plain_model().score.weight)  # what the name cleaner of the seed would send


def test_an_adapter_on_the_head_is_no_head() -> None:
    assert "merged_state_dict" in refused(
        {"score.base_layer.weight": torch.ones(1), "score.lora_A.default.weight": torch.ones(1)}, HEAD_ONLY
    )


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (torch.ones(2, dtype=torch.int64), "torch.int64, and a served weight is one of float32, bfloat16, float16"),
        (torch.ones(2, dtype=torch.float64), "torch.float64"),
        (torch.ones(2, dtype=torch.bool), "torch.bool"),
        (torch.ones(2, device="meta"), "on the meta device"),
        (torch.eye(2).to_sparse(), "make it dense"),
        ([1.0, 2.0], "no tensor, but list"),
        (None, "no tensor, but NoneType"),
    ],
)
def test_what_cannot_be_sent_is_an_error_that_names_it(value: object, reason: str) -> None:
    message = refused(state(model__extra=value))
    assert "model.extra is" in message
    assert reason in message


def test_every_value_that_cannot_be_sent_is_named_up_to_ten() -> None:
    message = refused(state(**{f"model__n{number}": number for number in range(12)}))
    assert "model.n0 is" in message
    assert "model.n9 is" in message
    assert "and 2 more" in message


def test_head_only_does_not_mind_what_it_leaves_out() -> None:
    assert list(selected(state(model__steps=torch.ones(1, dtype=torch.int64)), HEAD_ONLY)) == ["score.weight"]


def test_nothing_at_all_is_an_error() -> None:
    assert "0 entries" in refused({})


def test_tied_weights_are_sent_once() -> None:
    table = nn.Parameter(torch.ones(3, 2))
    for names in (["model.embed_tokens.weight", "lm_head.weight"], ["lm_head.weight", "model.embed_tokens.weight"]):
        tied = {"model.norm.weight": torch.ones(2), **dict.fromkeys(names, table)}
        assert list(selected(tied, generative=True)) == ["model.norm.weight", "model.embed_tokens.weight"]


def test_tensors_that_only_share_a_part_of_their_memory_are_all_sent() -> None:
    fused = torch.arange(8.0).view(4, 2)
    halves = {"model.a.weight": fused[:2], "model.b.weight": fused[2:], "model.c.weight": fused[:2].t()}
    assert list(selected(halves, generative=True)) == list(halves)


def test_a_filter_chooses_the_keys_of_a_policy_by_their_served_names() -> None:
    policy = {"module.model.norm.weight": torch.ones(2), "module.v_head.summary.weight": torch.ones(1), "module.steps": 3}
    taken = selected(policy, generative=True, key_filter=lambda name: name.startswith("model."))
    assert list(taken) == ["model.norm.weight"]
    with pytest.raises(WeightSyncError, match="key_filter lets through"):
        selected(policy, key_filter=lambda name: False)


def test_nothing_is_copied_and_nothing_carries_gradients() -> None:
    model = plain_model()
    taken = selected(dict(model.named_parameters()))
    assert taken["score.weight"].data_ptr() == model.score.weight.data_ptr()
    assert not any(tensor.requires_grad for tensor in taken.values())


def test_what_is_taken_can_be_laid_out_for_the_way() -> None:
    taken = selected(plain_model().state_dict())
    specs = [TensorSpec(name, str(value.dtype).removeprefix("torch."), tuple(value.shape)) for name, value in taken.items()]
    assert Manifest.of(specs, 1024).nbytes == sum(value.nbytes for value in taken.values())

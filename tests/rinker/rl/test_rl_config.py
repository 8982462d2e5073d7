"""The settings of reinforcement learning: presets, and what does not fit together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from reward_loop.credit.normalization import CENTERED, VERL_GRPO
from tests.rinker.rl.copy_task import copy_config


def config(**settings: Any) -> Any:
    return copy_config(Path("unused"), "unused", **settings)


def test_by_default_the_mean_is_subtracted_and_losses_are_summed() -> None:
    plain = config()
    assert (plain.advantage.normalization(), plain.aggregation, plain.loss_fn) == (CENTERED, "token-sum", "importance_sampling")


def test_presets_are_settings_of_the_same_loop() -> None:
    grpo, dr_grpo, dapo = (config(preset=name) for name in ("grpo", "dr_grpo", "dapo"))
    assert (grpo.loss_fn, grpo.advantage.normalization(), grpo.aggregation) == ("ppo", VERL_GRPO, "seq-mean-token-mean")
    assert (dr_grpo.advantage.normalization(), dr_grpo.aggregation) == (CENTERED, "seq-mean-token-sum-norm")
    assert (dapo.aggregation, dapo.remove_constant_reward_groups) == ("token-mean", True)
    assert dapo.loss_fn_config == {"clip_low_threshold": 0.8, "clip_high_threshold": 1.28}
    assert dapo.overlong is not None


def test_what_is_said_beside_a_preset_wins() -> None:
    mixed = config(preset="dapo", loss_fn="cispo", loss_fn_config={"clip_high_threshold": 5.0}, advantage={"ddof": 0})
    assert mixed.loss_fn == "cispo"
    assert mixed.loss_fn_config == {"clip_low_threshold": 0.8, "clip_high_threshold": 5.0}
    assert (mixed.advantage.scale, mixed.advantage.ddof) == ("group", 0)


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"preset": "reinforce"}, "preset"),
        ({"batch_size": 6, "num_substeps": 4}, "must be a multiple of num_substeps"),
        ({"batch_size": 6, "stream": {"num_minibatches": 4}}, "must be a multiple of num_substeps"),
        ({"stream": {}, "aggregation": "token-mean"}, "is over the whole batch"),
        ({"stream": {}, "advantage": {"scale": "batch"}}, "is over the whole batch"),
        ({"stream": {}, "kl": {"token_coef": 0.1}}, "is over the whole batch"),
        ({"data": {}}, "exactly one of builder"),
        ({"data": {"builder": "a.py", "problems": "b.jsonl"}}, "exactly one of builder"),
        ({"temperature": 0}, "greater than 0"),
        ({"loss_fn": "cross_entropy"}, "loss_fn=cross_entropy reads no advantages; use one of importance_sampling, ppo"),
        (
            {"loss_fn": "ppo", "loss_fn_config": {"clip_hi": 1.3}},
            "'clip_hi'.* is no setting of ppo, which has clip_low_threshold",
        ),
        ({"loss_fn_config": {"clip_high_threshold": 1.3}}, "is no setting of importance_sampling, which has no setting at all"),
        ({"loss_fn": "ppo", "loss_fn_config": {"clip_low_threshold": 3}}, "clip_low_threshold=3.0 is above"),
        ({"max_tokens": 10, "overlong": {"buffer_tokens": 11}}, "overlong.buffer_tokens=11 must not be above max_tokens=10"),
        ({"group_sizes": 3}, "group_sizes"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ValidationError, match=wrong):
        config(**settings)


def test_a_long_answer_may_still_be_streamed_with_a_penalty_by_the_reward() -> None:
    assert config(stream={"num_minibatches": 8}, kl={"reward_coef": 0.1}, num_substeps=2).parts == 16

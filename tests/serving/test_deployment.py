"""A manager takes what a trainer holds: a whole configuration, or its section on reward models in either spelling."""

from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from reward_loop import load_config
from reward_loop.serving.deployment import whole_config

SECTION = {"enable": True, "model": {"path": "m"}, "rollout": {"max_model_len": 7}}


@pytest.mark.parametrize(
    "config",
    [
        {"reward_model": SECTION},
        SECTION,
        OmegaConf.create(SECTION),
        load_config({"reward_model": SECTION}),
        load_config({"reward_model": SECTION}).reward_model,
        {"enable": True, "model_path": "m", "rollout": {"max_model_len": 7}},
        {"reward": {"reward_model": {"enable": True, "model_path": "m", "rollout": {"max_model_len": 7}}}},
    ],
    ids=["whole", "section", "DictConfig", "loaded", "loaded section", "new section", "new whole"],
)
def test_all_of_these_say_the_same(config: object) -> None:
    settings = whole_config(config).reward_model
    assert (settings.enable, settings.model.path, settings.rollout.max_model_len) == (True, "m", 7)

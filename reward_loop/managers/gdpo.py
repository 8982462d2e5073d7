"""Component rewards kept apart, for the decoupled normalisation of GDPO."""

from __future__ import annotations

import math
from typing import Any

from reward_loop.data.sample import Sample
from reward_loop.errors import ConfigError, InvalidReward
from reward_loop.managers.base import ManagerKwargs, RewardManagerBase
from reward_loop.managers.registry import register
from reward_loop.outcome import Reward, finite


@register("gdpo")
class GdpoRewardManager(RewardManagerBase):
    """Check that each component of `algorithm.gdpo_reward_keys` is a finite number in the extra info (GDPO, arXiv:2601.05242).

    The advantage normalises each component on its own, so it needs every one of every sample. A function that returns no
    "score" but the components gets their sum, weighted by `algorithm.gdpo_reward_weights` (default 1 each).
    """

    kwargs_model = ManagerKwargs

    def check(self) -> None:
        """Raise ConfigError if no components are named, besides what every manager checks."""
        super().check()
        if not self.config.algorithm.gdpo_reward_keys:
            raise ConfigError("reward_manager gdpo needs algorithm.gdpo_reward_keys, e.g. [accuracy_reward, format_reward]")

    def inputs(self, sample: Sample) -> dict[str, Any]:
        """Add the experiment's name to the extra info, where GDPO's reward functions look for it."""
        sample.extra_info["experiment_name"] = self.config.trainer.experiment_name
        return super().inputs(sample)

    def finish(self, sample: Sample, result: object) -> Reward:
        """Complete a result that holds only components, then check them."""
        unscorable = result is None or (isinstance(result, dict) and result.get("score", 0.0) is None)
        return super().finish(sample, result if unscorable else self._with_components(result))

    def _with_components(self, result: object) -> dict[str, Any]:
        keys = self.config.algorithm.gdpo_reward_keys or ()
        if not isinstance(result, dict):
            raise InvalidReward(f"gdpo needs a dict with the components {list(keys)}; the function returned {result!r:.200}")
        weights = self.config.algorithm.gdpo_reward_weights or (1.0,) * len(keys)
        weighted = [weight * _component(result, key) for key, weight in zip(keys, weights, strict=True)]
        return {"score": math.fsum(weighted), **result}


def _component(result: dict[str, Any], key: str) -> float:
    try:
        return finite(result.get(key))
    except InvalidReward:
        raise InvalidReward(f"gdpo: component {key!r} must be a finite number; it is {result.get(key)!r:.200}") from None

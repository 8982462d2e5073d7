"""The manager for functions that ask a service which limits how often it is asked."""

from __future__ import annotations

from reward_loop.errors import ConfigError
from reward_loop.managers.naive import NaiveRewardManager
from reward_loop.managers.registry import register


@register("rate_limited")
class RateLimitedRewardManager(NaiveRewardManager):
    """As `naive`, but refuses to start without a limit; the limit itself, `reward_model.rate_limit`, works with every manager."""

    def check(self) -> None:
        """Raise ConfigError if no limit is set, besides what every manager checks."""
        super().check()
        if not self.config.reward_model.rate_limit.limited:
            raise ConfigError(
                "reward_manager rate_limited needs a limit: set reward_model.rate_limit.max_rpm (requests per minute), "
                "max_tpm (tokens per minute) or max_concurrent (requests in flight)"
            )

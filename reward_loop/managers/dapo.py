"""The overlong penalty of DAPO."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from reward_loop.data.sample import Sample
from reward_loop.errors import DataError
from reward_loop.managers.base import ManagerKwargs, RewardManagerBase
from reward_loop.managers.registry import register
from reward_loop.outcome import Reward


class OverlongBuffer(ManagerKwargs):
    """The last tokens before the limit, in which longer responses earn less."""

    enable: bool = False
    len: int = Field(default=0, ge=0)
    """Tokens before `max_resp_len` at which the penalty begins."""
    penalty_factor: float = Field(default=1.0, ge=0)
    """The penalty at `max_resp_len`."""
    log: bool = False
    """Whether `overlong_reward` and `overlong` go into the extra info."""


class DapoKwargs(ManagerKwargs):
    """Settings of the manager `dapo`."""

    overlong_buffer_cfg: OverlongBuffer = OverlongBuffer(len=0, penalty_factor=1.0)
    max_resp_len: int | None = Field(default=None, gt=0)
    """Response tokens at which the penalty reaches `penalty_factor`."""

    @model_validator(mode="after")
    def _buffer_fits(self) -> Self:
        buffer = self.overlong_buffer_cfg
        if buffer.enable and not (self.max_resp_len and 0 < buffer.len <= self.max_resp_len):
            raise ValueError(f"needs 0 < overlong_buffer_cfg.len={buffer.len} <= max_resp_len={self.max_resp_len}")
        return self


def overlong_penalty(tokens: int, limit: int, buffer: int, factor: float = 1.0) -> float:
    """Return what so many response tokens cost: 0 up to `limit - buffer`, then linearly less, -`factor` at `limit`."""
    return min(-(tokens - (limit - buffer)) / buffer * factor, 0.0)


@register("dapo")
class DapoRewardManager(RewardManagerBase):
    """Subtract the soft overlong punishment (DAPO, arXiv:2503.14476, equation 13).

    With `excess = response_tokens - (max_resp_len - len)`, a positive excess costs `excess / len * penalty_factor`: nothing up to
    the buffer, `penalty_factor` at `max_resp_len`, and more beyond it.
    """

    kwargs_model = DapoKwargs

    def shape(self, sample: Sample, reward: Reward) -> Reward:
        """Return the reward less the penalty; DataError for a rollout that came without token ids."""
        settings: DapoKwargs = self.kwargs
        buffer, limit = settings.overlong_buffer_cfg, settings.max_resp_len
        if not buffer.enable or limit is None:
            return reward
        penalty = overlong_penalty(self._response_tokens(sample), limit, buffer.len, buffer.penalty_factor)
        log = {"overlong_reward": penalty, "overlong": penalty < 0} if buffer.log else {}
        return reward.plus(penalty, **log)

    def _response_tokens(self, sample: Sample) -> int:
        if sample.response_tokens is not None:
            return sample.response_tokens
        if self.tokenizer is None:
            raise DataError(
                "the overlong penalty counts response tokens, and this rollout is text: "
                "set actor_rollout_ref.model.path to the policy's tokenizer, or pass token ids"
            )
        return len(self.tokenizer(sample.solution_str, add_special_tokens=False)["input_ids"])

"""A manager that overrides `shape`: whatever the reward function says, repetition costs something."""

from __future__ import annotations

from pydantic import Field

from reward_loop import RewardManagerBase, register
from reward_loop.data.sample import Sample
from reward_loop.managers import ManagerKwargs
from reward_loop.outcome import Reward


class RepetitionKwargs(ManagerKwargs):
    """What `reward_model.reward_kwargs` may hold; a wrong key or value stops the run before it starts."""

    ngram: int = Field(default=3, ge=1)
    """Words in a phrase."""
    penalty: float = Field(default=0.5, ge=0)
    """Cost of a response that is nothing but one phrase."""


@register("repetition_penalty")
class RepetitionPenaltyManager(RewardManagerBase):
    """Subtract `penalty` times the share of phrases that occurred before."""

    kwargs_model = RepetitionKwargs

    def shape(self, sample: Sample, reward: Reward) -> Reward:
        """Return the reward less the penalty, and the share as extra info."""
        settings: RepetitionKwargs = self.kwargs
        words = sample.solution_str.split()
        phrases = [tuple(words[start : start + settings.ngram]) for start in range(len(words) - settings.ngram + 1)]
        repeated = 1 - len(set(phrases)) / len(phrases) if phrases else 0.0
        return reward.plus(-settings.penalty * repeated, repeated=repeated)

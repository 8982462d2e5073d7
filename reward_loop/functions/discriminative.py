"""The reward of a discriminative model: one score for the response, in its conversation."""

from __future__ import annotations

from typing import Any

from reward_loop.errors import RewardServerError
from reward_loop.functions.conversation import conversation
from reward_loop.functions.scored_conversation import ScoredModel, labelled


class DiscriminativeReward:
    """A reward function: the score of `label`; where there are several, all go into the extra info as `rm_labels`."""

    def __init__(self, model: ScoredModel, label: int = -1) -> None:
        self.name = model.name
        self._model = model
        self._label = label

    async def __call__(self, *, solution_str: str, raw_prompt: Any) -> dict[str, Any]:
        """Return the score with `rm_score`, `rm_model`, `rm_tokens` (of the conversation) and `rm_version` (of the weights).

        Raises DataError for a conversation that the model can't be asked, and RewardServerError for what its server said.
        """
        scored = await self._model.score(conversation(raw_prompt, [solution_str]))
        values = [score for score in _listed(scored.score) if isinstance(score, float | int)]
        if not values or len(values) != len(_listed(scored.score)):
            raise RewardServerError(
                f"the reward model {self.name} answered {scored.score!r:.200}, not a number per label: it scores tokens or "
                "steps; set its kind to process, or its scoring.pooling to LAST"
            )
        score = labelled(values, self._label, self.name)
        labels = {"rm_labels": values} if len(values) > 1 else {}
        return {"score": score, "rm_score": score, **scored.about(self.name), **labels}


def _listed(score: object) -> list[Any]:
    return score if isinstance(score, list) else [score]

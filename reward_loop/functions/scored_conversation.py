"""Asking one served model for the score of a conversation: tokens by its own chat template, off the event loop, then its server.

Invariant: the score is of exactly the tokens that `tokens` counts; a conversation that can't be asked as it is fails alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from reward_loop.errors import ConfigError, DataError
from reward_loop.functions.chat_template import ChatTemplate
from reward_loop.functions.conversation import Conversation
from reward_loop.functions.side_thread import SideThread
from reward_loop.functions.truncation import Fit
from reward_loop.scoring.reward_client import RewardModelClient, Score


@dataclass(frozen=True, slots=True)
class Scored:
    """What a model made of a conversation, how many tokens it was, and the version of the weights, if the server says so."""

    score: Score
    tokens: int
    version: int | None = None

    def about(self, model: str) -> dict[str, Any]:
        """Return what goes into the extra info beside a score: `rm_model`, `rm_tokens`, and `rm_version` where it is known."""
        version = {} if self.version is None else {"rm_version": self.version}
        return {"rm_model": model, "rm_tokens": self.tokens, **version}


class ScoredModel:
    """One reward model: its name, its chat template, how its conversations are made to `fit`, and the client of its servers."""

    def __init__(
        self, name: str, template: ChatTemplate, client: RewardModelClient, fit: Fit | None = None, normalize: bool = False
    ) -> None:
        self.name = name
        self._template = template
        fit = fit or Fit(None)
        self._fit = replace(fit, first_token=template.first_token, end_tokens=template.end_tokens)
        self._client = client
        self._normalize = normalize
        self._encode = SideThread(template.encode)

    async def score(self, conversation: Conversation) -> Scored:
        """Return the model's score; raises DataError for what it can't be asked, and what the client raises otherwise."""
        ids = self._fit(await self._encode(conversation))
        if (tag := self._template.tag_id) is not None and ids.count(tag) < len(conversation.steps):
            raise DataError(
                f"the reward model {self.name} takes {self._fit.limit} tokens, which a response of {len(conversation.steps)} "
                "steps exceeds: a step that is cut off has no score; raise reward_model.rollout.max_model_len"
            )
        result = await self._client.score_one(ids, normalize=self._normalize)
        return Scored(result.score, len(ids), result.version)


def labelled(values: Sequence[float], label: int, model: str) -> float:
    """Return the value of a label, counted from the end if negative; ConfigError if the model has no such label."""
    if not -len(values) <= label < len(values):
        raise ConfigError(
            f"reward_model.scoring.label={label}, but the reward model {model} has {len(values)} labels; set one of them"
        )
    return values[label]

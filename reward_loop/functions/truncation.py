"""What becomes of a conversation that is longer than its model takes.

Invariant: its end is kept, and with it at least one token of the response; nothing is cut off that was not said to be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from reward_loop.errors import ConfigError, DataError


@dataclass(frozen=True, slots=True)
class Fit:
    """The most tokens that a model takes (None: its server decides), and what becomes of more.

    `first_token` stays where it begins the conversation; `end_tokens` is the length of what closes it, after the response.
    """

    limit: int | None
    too_long: Literal["truncate_left", "error"] = "error"
    first_token: int | None = None
    end_tokens: int = 0

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit <= self.end_tokens + 1:
            raise ConfigError(
                f"a reward model that takes {self.limit} tokens has no room for a response: the chat template closes it with "
                f"{self.end_tokens}; raise reward_model.rollout.max_model_len"
            )

    def __call__(self, ids: list[int]) -> list[int]:
        """Return the ids, without their beginning where they are too many; DataError where nothing may be cut off."""
        if self.limit is None or len(ids) <= self.limit:
            return ids
        if self.too_long == "error":
            raise DataError(
                f"the conversation has {len(ids)} tokens, and the reward model takes {self.limit}: raise "
                "reward_model.rollout.max_model_len, or set reward_model.scoring.too_long=truncate_left to drop its beginning"
            )
        kept = ids[:1] if ids[0] == self.first_token else []
        return kept + ids[len(ids) - self.limit + len(kept) :]

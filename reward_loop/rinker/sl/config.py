"""The settings of supervised learning."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator

from reward_loop.config_base import Config, Count
from reward_loop.rinker.loops.config import LoopConfig
from reward_loop.rinker.rendering import TrainOnWhat
from reward_loop.rinker.runtime.settings import refuse_rewards


class ConversationsConfig(Config):
    """Where conversations come from."""

    path: str
    """JSON Lines, one conversation on each: a list of messages (role, content)."""
    test_path: str | None = None
    """Those to evaluate on."""
    messages_field: str = "messages"
    """Where the messages stand."""
    max_tokens: Count | None = None
    """Tokens up to which a conversation is taken; null, or more: as many as the model takes, where the service knows it."""
    too_long: Literal["error", "drop", "truncate_right"] = "error"
    """What becomes of a longer one; cut at its end, it must still teach something."""


class SLConfig(LoopConfig):
    """A run of supervised learning."""

    data: ConversationsConfig
    """The conversations."""
    batch_size: Count = 128
    """Conversations of one step."""
    train_on_what: TrainOnWhat = TrainOnWhat.ALL_ASSISTANT_MESSAGES
    """Which tokens are taught."""
    reduction: Literal["sum", "mean"] = "sum"
    """Whether the loss is summed over the tokens of a batch, as Tinker's, or averaged; the latter makes clipping comparable."""

    @model_validator(mode="after")
    def _nothing_idle(self) -> SLConfig:
        refuse_rewards(self.service.runtime, "service.runtime")
        return self

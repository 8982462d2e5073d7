"""The settings of a reward model's training."""

from __future__ import annotations

from pydantic import model_validator

from reward_loop.config_base import Config, Count
from reward_loop.rinker.loops.config import AdamConfig, Amount, LoopConfig
from reward_loop.rinker.runtime.settings import refuse_rewards
from reward_loop.training.encoding import TooLong


class PreferencesConfig(Config):
    """Where preferences come from: JSON Lines or Parquet."""

    path: str
    """Two answers to a prompt on each line, of which the chosen one is better."""
    test_path: str | None = None
    """Those to evaluate on."""
    prompt_field: str | None = "prompt"
    """Where the prompt stands; null: the answers hold all of it."""
    chosen_field: str = "chosen"
    """Where the better answer stands."""
    rejected_field: str = "rejected"
    """Where the other one stands."""
    max_tokens: Count | None = None
    """Tokens up to which a pair is taken; null, or more: as many as the model takes, where the service knows it."""
    too_long: TooLong = "error"
    """What becomes of a longer one."""


class RMConfig(LoopConfig):
    """A run that trains a reward model."""

    data: PreferencesConfig
    """The preferences."""
    adam: AdamConfig = AdamConfig(learning_rate=1e-3, schedule="linear", warmup_steps=20)
    """Without the fall a small model's accuracy depends on the step at which the training happens to end."""
    batch_size: Count = 64
    """Pairs of one step."""
    center: Amount = 0.0
    """Weight of the penalty that keeps rewards about 0; 0.01 is usual."""

    @model_validator(mode="after")
    def _nothing_idle(self) -> RMConfig:
        refuse_rewards(self.service.runtime, "service.runtime")
        return self

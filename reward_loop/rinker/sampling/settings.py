"""How much the Hugging Face sampler takes on at a time."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from reward_loop.errors import ConfigError

SamplerDtype = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True, slots=True)
class HFSamplerSettings:
    """Limits of one sampler. Raises ConfigError for a limit below what one call needs."""

    device: str | None = None
    """None: the first GPU, or the CPU where there is none."""
    dtype: SamplerDtype | None = None
    """What the weights are cast to; None: they stay as they are."""
    trust_remote_code: bool = False
    """Run code that comes with a model."""
    window_s: float = 0.01
    """How long the first call of an idle sampler waits for others to run with it; it ends when none came for a quarter of it."""
    max_batch_tokens: int = 131_072
    """What a batch may hold of prompts and answers together, each sequence counted at its longest."""
    max_batch_sequences: int = 1024
    max_prompt_logits: int = 1 << 27
    """How many scores (tokens times vocabulary) are in memory at once for the log-probabilities of prompts."""
    max_batches: int = 2
    """Batches that go on by turns: a short call need not wait for the end of a long one."""
    max_waiting: int = 16_384
    """Calls that may wait; one more is refused."""
    max_snapshots: int = 4
    """Snapshots that stay loaded; the one that was asked least recently goes first."""

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            if setting.name.startswith("max_") and value < 1:
                raise ConfigError(f"HFSamplerSettings.{setting.name}={value} leaves room for nothing; give 1 or more")
        if self.window_s < 0:
            raise ConfigError(f"HFSamplerSettings.window_s={self.window_s} is below 0")

"""How vLLM servers are asked."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from reward_loop.config_base import Config, Delay
from reward_loop.config_sync import SyncConfig


class VLLMSamplerSettings(Config):
    """Deadlines, keys, and how weights get to the servers."""

    model: str | None = None
    """Name under which the servers know their model; null where they have one."""
    timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """Seconds that a call may take, with all its attempts."""
    restart_wait_s: Delay = 0.0
    """Seconds that a call waits for a server to be back where none can be reached; 0: it fails at once."""
    api_key_env: str | None = None
    """Environment variable with the bearer token that the servers want."""
    sync: SyncConfig = Field(default_factory=SyncConfig)
    """How weights are published."""

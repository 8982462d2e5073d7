"""The settings of `rinker serve`."""

from __future__ import annotations

from pydantic import model_validator

from reward_loop.config_base import Config, Count
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.runtime.settings import RuntimeSettings, refuse_rewards
from reward_loop.rinker.server.settings import ServerSettings
from reward_loop.rinker.service.settings import ServiceSettings


class ServeConfig(Config):
    """A training service and the HTTP server in front of it."""

    checkpoints: str = "checkpoints"
    """Directory of what clients save."""
    base_models: tuple[str, ...] = ()
    """Models that may be trained and sampled from (directories or names of the hub); empty: whatever can be loaded."""
    max_snapshots: Count = 8
    """Unnamed weights to sample from that are kept in memory."""
    server: ServerSettings = ServerSettings()
    """Where it listens, and for whom."""
    engine: EngineSettings = EngineSettings()
    """How models are held and computed."""
    runtime: RuntimeSettings = RuntimeSettings()
    """Where they are: in this process, on Ray, sampled by vLLM."""

    @model_validator(mode="after")
    def _nothing_idle(self) -> ServeConfig:
        refuse_rewards(self.runtime, "runtime")
        return self

    @property
    def limits(self) -> ServiceSettings:
        """What the service takes on at a time."""
        return ServiceSettings(self.base_models, max_models=self.server.max_models, max_snapshots=self.max_snapshots)

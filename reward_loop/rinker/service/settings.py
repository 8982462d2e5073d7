"""The limits of a service."""

from __future__ import annotations

from dataclasses import dataclass, fields

from reward_loop.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """How much is held at a time. Raises ConfigError for a limit that leaves room for nothing."""

    base_models: tuple[str, ...] = ()
    """What may be trained and sampled from; empty: whatever can be loaded."""
    trust_remote_code: bool = False
    """Run code that comes with a model."""
    max_models: int = 16
    """Models in training at a time."""
    max_sampling_sessions: int = 4096
    """Sampling sessions that are known; the one that was used least recently is forgotten first."""
    max_snapshots: int = 8
    """Unnamed snapshots that are kept in memory; the one that was used least recently is forgotten first, with its sessions."""
    max_waiting: int = 4096
    """Operations of one model that may wait for their turn."""
    max_results: int = 64
    """Results of one model that are kept for a client that asks again."""
    gap_timeout_s: float = 60.0
    """How long a model waits for an operation that was numbered and has not come, before those behind it fail."""

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            if setting.name.startswith(("max_", "gap_")) and value <= 0:
                raise ConfigError(f"ServiceSettings.{setting.name}={value} leaves room for nothing; give more than 0")

"""An agent's action and what came of it, as rubrics see them.

Environments may pass objects of their own instead, such as OpenEnv's: rubrics read attributes, never classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Action:
    """What the agent did: the text that it wrote."""

    message: str

    @property
    def content(self) -> str:
        """The message, under the name by which others know it."""
        return self.message


@dataclass(slots=True)
class Observation:
    """What the environment answered: whether the episode is over, the reward (None: there is none) and all else."""

    done: bool = False
    reward: float | None = None
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    message: str = ""


def is_done(observation: Any) -> bool:
    """Return whether an observation, of whatever class, ends the episode."""
    return bool(getattr(observation, "done", False))


def metadata_of(observation: Any) -> Mapping[str, Any]:
    """Return the metadata of an observation, of whatever class; empty where it has none."""
    if type(observation) is Observation:  # most are, and `Mapping` takes long to ask
        return observation.metadata
    metadata = observation.get("metadata") if isinstance(observation, Mapping) else getattr(observation, "metadata", None)
    return metadata if isinstance(metadata, Mapping) else {}

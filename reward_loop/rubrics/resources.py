"""What a running reward loop has that rubrics may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reward_loop.rubrics.judges.services import JudgeServices


@dataclass(frozen=True, slots=True)
class Resources:
    """Each is None where there is none; a rubric that needs it raises ConfigError when it is built."""

    judges: JudgeServices | None = None
    """The judges' services, open."""
    reward_model: Callable[..., Any] | None = None
    """Scores a rollout with the discriminative reward model; takes what a custom reward function takes."""
    custom_function: Callable[..., Any] | None = None
    """The custom reward function."""
    in_the_loop: Callable[[Callable[..., Any], Mapping[str, Any]], Callable[..., Any] | None] | None = None
    """Makes of a reward function and its options what runs it where it belongs; gives None where any thread will do."""
    router_address: str | None = None
    """host:port of the router in front of the reward models."""
    sandbox: Any = None
    """Runs programs that are not trusted."""

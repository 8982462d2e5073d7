"""What a reward manager knows of the job that it works for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Job:
    """One reward loop, as one of its workers sees it."""

    name: str = ""
    """Identifies it among those of a Ray cluster."""
    workers_on_node: int = 1
    """Its workers on this machine, which share the cores."""
    limits: str | None = None
    """host:port where its workers share their limits; None: there is one worker."""
    token: str = ""
    """What its limits must be asked with."""

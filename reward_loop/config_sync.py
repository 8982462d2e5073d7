"""How new weights get from a trainer to the servers of reward models, and how old the weights that score may be."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from reward_loop.config_base import Config, Count, NotNegative

Plane = Literal["auto", "gloo", "nccl", "shm", "cuda_ipc", "directory"]


class SyncConfig(Config):
    """What publishing weights takes."""

    plane: Plane = "auto"
    """What carries the tensors; auto: the fastest that trainer and servers have in common."""
    bucket_mb: Count = 64
    """Size of the buckets that travel, in MiB; one is packed while the one before it travels."""
    timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """Seconds until all servers must have received an update, and as many again until all must serve it."""
    drain_timeout_s: Annotated[float, Field(gt=0)] = 60.0
    """Seconds that the requests in flight may take before an update; new ones wait meanwhile."""
    directory: str | None = None
    """Directory that trainer and servers both see, for plane=directory; null for a temporary one of this machine."""
    update_dir: str | None = None
    """Directory in which the servers keep updates (twice a model's size each); null for a temporary one."""
    max_staleness: NotNegative | None = None
    """Versions that the weights that score a sample may be behind the newest one that is known; null for any number."""
    on_stale: Literal["warn", "raise"] = "warn"
    """Whether staler weights are logged once per version, or fail each sample that they scored."""

"""What an update cost."""

from __future__ import annotations

from dataclasses import dataclass

from reward_loop.sync.training_mode import RewardModelTrainingMode


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """What one server said of it, in seconds; None where it did not say."""

    server: str
    drain_s: float | None = None
    """Waiting for the requests in flight, while new ones waited."""
    pause_s: float | None = None
    """From the beginning of the drain until it took requests again."""
    commit_s: float | None = None
    """Putting the weights into the model."""


@dataclass(frozen=True, slots=True)
class PublishReport:
    """One update that all servers of a model serve now."""

    version: int
    training_mode: RewardModelTrainingMode
    plane: str
    """What carried the tensors: the name of a plane, or "checkpoint" for servers that read a directory themselves."""
    tensors: int
    nbytes: int
    """Bytes that were sent, once for all servers."""
    prepare_s: float
    transfer_s: float
    commit_s: float
    replicas: tuple[ReplicaReport, ...]

    @property
    def seconds(self) -> float:
        """All of it."""
        return self.prepare_s + self.transfer_s + self.commit_s

    @property
    def longest_pause_s(self) -> float:
        """For how long the server that paused longest took no requests."""
        return max((each.pause_s for each in self.replicas if each.pause_s is not None), default=0.0)

    def __str__(self) -> str:
        return (
            f"version={self.version} mode={self.training_mode} plane={self.plane} servers={len(self.replicas)} "
            f"tensors={self.tensors} bytes={self.nbytes} prepare_s={self.prepare_s:.3f} transfer_s={self.transfer_s:.3f} "
            f"commit_s={self.commit_s:.3f} longest_pause_s={self.longest_pause_s:.3f}"
        )

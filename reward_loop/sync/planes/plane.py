"""What both ends of a plane promise.

A plane carries the buckets of one update, in order, from one trainer to all of its receivers, and is closed afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import torch

from reward_loop.sync.manifest import Manifest

PlaneName: TypeAlias = Literal["gloo", "nccl", "shm", "cuda_ipc", "directory"]

Ticket: TypeAlias = Mapping[str, Any]
"""What a receiver needs to join: plain values with at least "plane", carried to it by POST /init_weight_transfer_engine."""


class TensorCommunicator(Protocol):
    """The trainer's end; a context manager would be `closing(...)`. Every method raises WeightSyncError."""

    @property
    def plane(self) -> PlaneName:
        """Which plane it is."""
        ...

    def open(self, manifest: Manifest, receivers: int, timeout_s: float) -> Sequence[Ticket]:
        """Make the rendezvous and return a ticket for each receiver; waits for nobody.

        No wait for another end is longer than `timeout_s`. After `close` it can be opened anew, for the next update.
        """
        ...

    def buffer(self, index: int) -> torch.Tensor:
        """Return the memory of bucket `index` (uint8, of its size) to be filled; waits until an earlier bucket has left it."""
        ...

    def send(self, index: int) -> None:
        """Let the filled bucket travel; returns without waiting, so that the next can be filled meanwhile."""
        ...

    def flush(self) -> None:
        """Wait until every bucket has arrived everywhere."""
        ...

    def abort(self) -> None:
        """Make every wait of the others end soon with WeightSyncError; may be called from another thread, and twice."""
        ...

    def close(self) -> None:
        """Free what it holds; does nothing the second time."""
        ...


class TensorReceiver(Protocol):
    """A server's end, made from a ticket."""

    def receive(self, index: int, into: torch.Tensor) -> None:
        """Fill `into` (uint8 on the CPU, of the bucket's size) with bucket `index`; raises WeightSyncError, in its time limit."""
        ...

    def abort(self) -> None:
        """Make a receive that waits end soon; may be called from another thread, and twice."""
        ...

    def close(self) -> None:
        """Free what it holds; does nothing the second time."""
        ...

"""What the servers' ends of all planes have in common: joining, the order of the buckets, giving up.

Invariants: making one waits for nobody, the first `receive` joins; the trainer hears of a receiver that leaves before the end.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

import torch

from reward_loop.errors import WeightSyncError
from reward_loop.sync.planes.mailbox import TRAINER, Mailbox, Signal
from reward_loop.sync.planes.plane import Ticket

_ABORTED = "the update was aborted"


@dataclass(frozen=True, slots=True)
class Invitation:
    """What every ticket says."""

    plane: str
    host: str
    port: int
    trainer: str
    number: int
    """This receiver's, from 1 on."""
    receivers: int
    bucket_bytes: int
    nbytes: int

    @classmethod
    def of(cls, ticket: Ticket) -> Self:
        """Read a ticket; raises WeightSyncError for what is none."""
        try:
            texts = [str(ticket[name]) for name in ("plane", "host", "port", "trainer")]
            numbers = [int(ticket[name]) for name in ("port", "number", "receivers", "bucket_bytes", "nbytes")]
        except (KeyError, TypeError, ValueError) as error:
            raise WeightSyncError(f"no ticket of a plane: {error!r}; {ticket!r:.200}") from None
        port, number, receivers, bucket_bytes, nbytes = numbers
        if not 0 < port < 65536 or not 1 <= number <= receivers or bucket_bytes <= 0 or nbytes <= 0:
            raise WeightSyncError(f"no ticket of a plane: {ticket!r:.200}")
        return cls(texts[0], texts[1], port, texts[3], number, receivers, bucket_bytes, nbytes)

    @property
    def buckets(self) -> int:
        """How many there are."""
        return -(-self.nbytes // self.bucket_bytes)

    def size(self, index: int) -> int:
        """Bytes of a bucket."""
        return min(self.bucket_bytes, self.nbytes - index * self.bucket_bytes)


class Receiver(ABC):
    """A TensorReceiver; a wait for the trainer lasts at most `timeout_s`."""

    def __init__(self, ticket: Ticket, timeout_s: float) -> None:
        self._invitation = Invitation.of(ticket)
        self._ticket = ticket
        self._timeout_s = timeout_s
        self._opened: Mailbox | None = None
        self._made = ExitStack()
        self._next = 0
        self._stopped = False

    def receive(self, index: int, into: torch.Tensor) -> None:
        """Fill `into` with bucket `index`, which must be the next one."""
        bucket = f"bucket {index} of {self._invitation.buckets}"
        if index != self._next or index >= self._invitation.buckets:
            raise WeightSyncError(f"{bucket} is not the next one, which is {self._next}: buckets come in order, and once")
        if into.numel() != self._invitation.size(index):
            raise WeightSyncError(f"{bucket} has {self._invitation.size(index)} bytes; there is memory for {into.numel()}")
        self._check()
        self._join()
        self._fetch(index, into)
        self._next += 1
        if self._next == self._invitation.buckets:
            self._mailbox.close()  # first: hearing this, the trainer may be gone, of which torch would complain in the log
            self._mailbox.post(TRAINER, "arrived")

    def abort(self) -> None:
        """Make a receive that waits end soon; the trainer hears of it by `close`."""
        self._stopped = True
        opened = self._opened  # another thread may close it
        if opened is not None:
            opened.stop(_ABORTED)

    def close(self) -> None:
        """Free what it holds; the trainer hears of it, if there are buckets to come."""
        self._stopped = True
        opened, self._opened = self._opened, None
        if opened is None:
            return
        if self._next < self._invitation.buckets:
            opened.abort(f"it left after {self._next} of {self._invitation.buckets} buckets")
            opened.close()
        self._made.close()

    # What a plane says.

    def _connect(self, _welcome: Any) -> None:
        """Make the connection, with what the trainer said when all had joined."""
        return

    @abstractmethod
    def _fetch(self, index: int, into: torch.Tensor) -> None:
        """Fill `into`."""

    # What it may use.

    @property
    def _mailbox(self) -> Mailbox:
        if self._opened is None:
            raise WeightSyncError(_ABORTED)
        return self._opened

    def _await(self, kind: str, what: str) -> Signal:
        """Return the next signal, which must be of this kind."""
        plane = self._invitation.plane
        awaited = f"{what} from the trainer, {self._invitation.trainer} ({plane})"
        signal = self._mailbox.read(awaited, time.monotonic() + self._timeout_s)
        if signal.kind == "broken":
            raise WeightSyncError(f"the plane ({plane}) broke before {what} had come: {signal.value}")
        if signal.kind != kind:
            raise WeightSyncError(f"got {signal.kind!r} instead of {what} ({plane}): trainer and server have other versions")
        return signal

    def _named(self, index: int) -> str:
        return f"bucket {index} of {self._invitation.buckets}"

    @property
    def _slot_bytes(self) -> int:
        return min(self._invitation.bucket_bytes, self._invitation.nbytes)

    def _join(self) -> None:
        if self._opened is not None:
            return
        invitation = self._invitation
        self._opened = mailbox = Mailbox.join(invitation.number, invitation.host, invitation.port, self._timeout_s)
        self._check()  # an abort that came meanwhile found no mailbox
        mailbox.post(TRAINER, "joined")
        self._connect(self._await("go", f"word that all {invitation.receivers} receivers have joined").value)

    def _check(self) -> None:
        if self._stopped:
            raise WeightSyncError(_ABORTED)

"""What the trainer's ends of all planes have in common: who has joined, which buckets have left, who has everything.

A plane makes two slots of memory, which the buckets take by turns, and says how a bucket travels; whoever needs a slot no longer
says so by a signal, `taken`.

Invariants: nothing travels before all have joined; a slot is filled anew only when all have taken what was in it; what a plane
has made is gone after `close`, and it can be opened again.
"""

from __future__ import annotations

import os
import socket
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

import torch

from reward_loop.errors import WeightSyncError
from reward_loop.sync.manifest import Manifest
from reward_loop.sync.planes.mailbox import TRAINER, Mailbox, Signal
from reward_loop.sync.planes.plane import PlaneName, Ticket

SLOTS = 2
"""One is filled while the other one travels."""


class Sender(ABC):
    """A TensorCommunicator at `host`, an address of the trainer's machine that servers reach; `port` 0 takes a free one.

    A wait for another end lasts at most the `timeout_s` that `open` was given.
    """

    name: ClassVar[PlaneName]

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._host = host
        self._port = port
        self._opened: Mailbox | None = None
        self._made = ExitStack()
        self._slots: list[torch.Tensor] = []
        self._begin(None, 0)

    @property
    def plane(self) -> PlaneName:
        """Which plane it is."""
        return self.name

    def open(self, manifest: Manifest, receivers: int, timeout_s: float) -> Sequence[Ticket]:
        """Make the rendezvous and return a ticket for each receiver."""
        self.close()
        self._begin(manifest, receivers)
        self._opened = mailbox = Mailbox.host(self._host, self._port, receivers, timeout_s)
        try:
            special = self._prepare()
        except BaseException:  # Ctrl-C too: the mailbox's port and the plane's memory must not stay taken
            self.close()
            raise
        common = {
            "plane": self.plane,
            "host": self._host,
            "port": mailbox.port,
            "trainer": f"process {os.getpid()} on {socket.gethostname()}",
            "receivers": receivers,
            "bucket_bytes": manifest.bucket_bytes,
            "nbytes": manifest.nbytes,
        }
        return [{**common, **special, "number": number} for number in self._everyone]

    def buffer(self, index: int) -> torch.Tensor:
        """Return the memory of a bucket; waits until the bucket that it held was taken."""
        earlier = index - SLOTS
        self._wait(
            lambda: earlier not in self._unsent and not self._held.get(earlier),
            lambda: f"{self._who(self._held[earlier])} to take bucket {earlier} of {self._manifest.buckets}",
        )
        return self._slot(index)

    def send(self, index: int) -> None:
        """Let a bucket travel; one that is sent before all have joined travels when they have."""
        self._mailbox.check()
        self._unsent.append(index)
        if self._joined:
            self._send_all()

    def flush(self) -> None:
        """Wait until everything has arrived everywhere."""
        last = self._manifest.buckets - 1
        if len(missing := set(range(last + 1)) - self._held.keys() - set(self._unsent)):
            raise WeightSyncError(f"{len(missing)} of {last + 1} buckets were not sent, the first of them bucket {min(missing)}")
        self._wait(
            lambda: not self._unsent and not any(self._held.values()),
            lambda: f"{self._who(set[int]().union(*self._held.values()))} to take what was sent, up to bucket {last}",
        )
        self._seal()
        self._collect("arrived", f"say that all {self._manifest.buckets} buckets have arrived")

    def abort(self) -> None:
        """Make every wait of this end and the receivers end soon."""
        opened = self._opened  # another thread may close it
        if opened is not None:
            opened.abort("the update was aborted")

    def close(self) -> None:
        """Free what it holds; whoever still waits hears that it is over."""
        if self._opened is None:
            return
        if not self._finished:
            self._opened.abort(f"the trainer closed the plane ({self.plane}) before everything had arrived")
        self._made.close()
        self._slots = []
        self._opened.close()
        self._opened = None

    # What a plane says.

    @abstractmethod
    def _prepare(self) -> Mapping[str, Any]:
        """Make `_slots`, of `_slot_bytes` each; return what a ticket has to say of this plane."""

    def _welcome(self) -> Any:
        """Return what one receiver has to know now that all have joined."""
        return None

    def _connect(self) -> None:
        """Make the connection, now that all know that all have joined."""
        return

    @abstractmethod
    def _dispatch(self, index: int) -> Collection[int]:
        """Begin to send a bucket; return the ends that will say `taken` when they no longer need its slot."""

    def _seal(self) -> None:
        """Do what is left to do when the last bucket was taken."""
        return

    # What it may use.

    @property
    def _mailbox(self) -> Mailbox:
        if self._opened is None:
            raise WeightSyncError(f"the plane ({self.plane}) is not open")
        return self._opened

    @property
    def _manifest(self) -> Manifest:
        if self._sent is None:
            raise WeightSyncError(f"the plane ({self.plane}) is not open")
        return self._sent

    @property
    def _slot_bytes(self) -> int:
        return min(self._manifest.bucket_bytes, self._manifest.nbytes)

    @property
    def _everyone(self) -> range:
        return range(1, self._receivers + 1)

    @property
    def _finished(self) -> bool:
        return self._heard["arrived"].issuperset(self._everyone)

    def _slot(self, index: int) -> torch.Tensor:
        return self._slots[index % SLOTS][: self._manifest.bucket_size(index)]

    def _collect(self, kind: str, what: str) -> None:
        """Wait until every receiver has sent a signal of this kind."""
        self._read_until(
            lambda: self._heard[kind].issuperset(self._everyone),
            lambda: f"{self._who(set(self._everyone) - self._heard[kind])} to {what}",
        )

    # How it waits.

    def _begin(self, manifest: Manifest | None, receivers: int) -> None:
        self._sent = manifest
        self._receivers = receivers
        self._joined = False
        self._unsent: list[int] = []
        self._held: dict[int, set[int]] = {}
        """For each bucket, the ends that have not taken it."""
        self._heard: defaultdict[str, set[int]] = defaultdict(set)
        """For each kind of signal, the receivers that sent one."""

    def _wait(self, done: Callable[[], bool], awaited: Callable[[], str]) -> None:
        """Return when it is done; where there is something to wait for, everyone joins first."""
        self._mailbox.check()
        if not done():
            self._join()
            self._read_until(done, awaited)

    def _join(self) -> None:
        if self._joined:
            return
        self._collect("joined", "join")
        for number in self._everyone:
            self._mailbox.post(number, "go", self._welcome())
        self._connect()
        self._joined = True
        self._send_all()

    def _send_all(self) -> None:
        while self._unsent:
            index = self._unsent[0]
            self._held[index] = set(self._dispatch(index))
            del self._unsent[0]

    def _read_until(self, done: Callable[[], bool], awaited: Callable[[], str]) -> None:
        until = time.monotonic() + self._mailbox.timeout_s
        while not done():
            self._note(self._mailbox.read(f"{awaited()} ({self.plane})", until))

    def _note(self, signal: Signal) -> None:
        if signal.kind == "taken":
            self._held[signal.value].discard(signal.sender)
        elif signal.kind == "broken":
            raise WeightSyncError(f"the plane ({self.plane}) broke: {signal.value}")
        else:
            self._heard[signal.kind].add(signal.sender)

    def _who(self, ends: Collection[int]) -> str:
        receivers = sorted(set(ends) - {TRAINER})
        if not receivers:
            return "the connection"
        return f"receiver{'s' * (len(receivers) > 1)} {', '.join(map(str, receivers))} of {self._receivers}"

"""Signals between the ends of a plane: each end has a mailbox at the trainer's TCPStore, to which all may post.

Whatever an end waits for (others to join, a bucket, room for the next one, an abort, a group that broke) comes as a signal to its
mailbox, so there is one kind of wait: it ends by a signal, by its deadline, or when the trainer's process dies. A thread fetches
the signals, so that those of this process (an abort, the end of a broadcast) need not go through the store.

Invariants: signals of one sender arrive in order; after an abort every read raises, also one that waits in another thread.
"""

from __future__ import annotations

import json
import queue
import socket
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from reward_loop.errors import WeightSyncError
from reward_loop.sync.planes.group import Store, connected_store, opened_store, ran_out_of_time

TRAINER = 0
_ABORT, _LOST, _CLOSED = "abort", "lost", "closed"
_CLOSING_S = 1.0


@dataclass(frozen=True, slots=True)
class Signal:
    """What one end tells another; `value` is a plain value."""

    kind: str
    sender: int
    """TRAINER, or the number of a receiver, from 1 on."""
    value: Any = None


class Mailbox:
    """The mailbox of end `me`. `others` are those that hear of its abort; a wait is not longer than `timeout_s`."""

    def __init__(self, me: int, others: Iterable[int], fetching: Store, posting: Store, timeout_s: float) -> None:
        self.me = me
        self.timeout_s = timeout_s
        self._others = tuple(others)
        self._posting = posting
        self._fetched: queue.SimpleQueue[Signal] = queue.SimpleQueue()
        self._aborted: str | None = None
        # The thread alone holds this connection, which is busy while it waits; the trainer's is the store itself.
        self._fetcher = threading.Thread(target=_fetch, args=(me, fetching, self._fetched), name="plane signals", daemon=True)
        self._fetcher.start()

    @classmethod
    def host(cls, host: str, port: int, receivers: int, timeout_s: float) -> Self:
        """Open a store at this address (port 0: a free one) and return the trainer's mailbox at it."""
        try:
            # A socket of ours, since the store would listen on every address of the machine.
            listening = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        except OSError as error:
            raise WeightSyncError(
                f"the trainer can't listen on {host}:{port} ({error}): pass host=, an address of its machine that servers reach"
            ) from None
        port = listening.getsockname()[1]
        try:
            store = opened_store(host, port, timeout_s, listening.detach())
            posting = connected_store(host, port, timeout_s)
        except (OSError, RuntimeError) as error:
            raise WeightSyncError(f"the trainer's store at {host}:{port} does not open: {first_line(error)}") from None
        return cls(TRAINER, range(1, receivers + 1), store, posting, timeout_s)

    @classmethod
    def join(cls, me: int, host: str, port: int, timeout_s: float) -> Self:
        """Return receiver `me`'s mailbox at the trainer's store."""
        try:
            fetching, posting = (connected_store(host, port, timeout_s) for _ in range(2))
        except OSError as error:
            raise WeightSyncError(
                f"the trainer can't be reached at {host}:{port}: {first_line(error)}; it is gone, or its publisher needs host=, "
                "an address of its machine that servers reach"
            ) from None
        return cls(me, [TRAINER], fetching, posting, timeout_s)

    @property
    def port(self) -> int:
        """The store's."""
        return self._posting.port

    def connection(self) -> Store:
        """Return a further connection, for the rendezvous of a group; it does not keep the trainer's store open."""
        try:
            return connected_store(self._posting.host, self._posting.port, self.timeout_s)
        except OSError as error:
            raise WeightSyncError(f"the trainer is gone: {first_line(error)}") from None

    def post(self, to: int, kind: str, value: Any = None) -> None:
        """Put a signal in the mailbox of `to`; raises WeightSyncError if the trainer is gone."""
        try:
            number = self._posting.add(f"{to}/posted", 1)
            self._posting.set(f"{to}/{number}", json.dumps([kind, self.me, value]))
        except RuntimeError as error:
            raise WeightSyncError(f"the trainer is gone: {first_line(error)}") from None

    def tell(self, kind: str, value: Any) -> None:
        """Post to this end itself."""
        self._fetched.put(Signal(kind, self.me, value))

    def read(self, awaited: str, until: float) -> Signal:
        """Return the next signal, if there is one before `until` (of time.monotonic()); `awaited` says for people what it may be.

        Raises WeightSyncError after an abort, when it is late and when the trainer is gone.
        """
        self.check()
        try:
            signal = self._fetched.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            raise WeightSyncError(f"waited {self.timeout_s:g} s in vain for {awaited}") from None
        if signal.kind == _LOST:
            raise WeightSyncError(f"the trainer was gone while this waited for {awaited}: {signal.value}")
        if signal.kind == _ABORT:
            self._aborted = self._aborted or f"{_name(signal.sender)} gave up: {signal.value}"
        self.check()
        return signal

    def check(self) -> None:
        """Raise WeightSyncError if there was an abort."""
        if self._aborted is not None:
            raise WeightSyncError(self._aborted)

    def stop(self, why: str) -> None:
        """End what this end waits for; from any thread."""
        self._aborted = self._aborted or why
        self.tell(_ABORT, why)

    def abort(self, why: str) -> None:
        """End what this end and the others wait for; from any thread, and silently where the trainer is gone."""
        self.stop(why)
        try:
            for end in self._others:
                self.post(end, _ABORT, why)
        except WeightSyncError:
            return  # whoever reads finds that out too

    def close(self) -> None:
        """Fetch no more; silently where the trainer is gone. With the trainer's mailbox its store ends."""
        try:
            self.post(self.me, _CLOSED)
        except WeightSyncError:
            return
        self._fetcher.join(_CLOSING_S)


def _fetch(me: int, store: Store, fetched: queue.SimpleQueue[Signal]) -> None:
    """Fetch the signals to this end until it is closed, or the trainer gone."""
    number = 1
    while True:
        try:
            signal = Signal(*json.loads(store.get(f"{me}/{number}")))
        except RuntimeError as error:
            if ran_out_of_time(error):
                continue  # nobody had anything to tell; whoever reads has limits of his own
            fetched.put(Signal(_LOST, TRAINER, first_line(error)))
            return
        if signal.kind == _CLOSED:
            return
        fetched.put(signal)
        number += 1


def first_line(error: BaseException) -> str:
    """Return what an error says without the frames that torch's errors bring."""
    return (str(error) or type(error).__name__).splitlines()[0]


def _name(end: int) -> str:
    return "the trainer" if end == TRAINER else f"receiver {end}"

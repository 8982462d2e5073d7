"""The plane of TCP: broadcasts of a gloo group, straight from and into the buckets' memory."""

from __future__ import annotations

import socket
import threading
from collections.abc import Collection, Mapping
from typing import Any

import torch

from reward_loop.errors import WeightSyncError
from reward_loop.sync.planes.group import Group, broadcast, gloo_group
from reward_loop.sync.planes.mailbox import TRAINER, Mailbox, first_line
from reward_loop.sync.planes.receiver import Receiver
from reward_loop.sync.planes.sender import SLOTS, Sender


class GlooSender(Sender):
    """The trainer's end; the weights may be on a GPU, the slots are not."""

    name = "gloo"

    def _prepare(self) -> Mapping[str, Any]:
        self._slots = [torch.empty(self._slot_bytes, dtype=torch.uint8) for _ in range(SLOTS)]
        return {}

    def _connect(self) -> None:
        self._collect("ready", "be ready for a group")  # to make one is a wait that no abort ends: nobody may have left before
        self._end = _End(self._mailbox, self._receivers, self._host)
        self._made.callback(self._end.close)

    def _dispatch(self, index: int) -> Collection[int]:
        self._end.broadcast(index, self._slot(index))
        return [TRAINER]


class GlooReceiver(Receiver):
    """A server's end."""

    def _connect(self, _welcome: Any) -> None:
        invitation = self._invitation
        try:
            with socket.create_connection((invitation.host, invitation.port), self._timeout_s) as way:
                own = str(way.getsockname()[0])  # the address of this machine on the way to the trainer
        except OSError as error:
            raise WeightSyncError(f"the trainer is gone: {error}") from None
        self._mailbox.post(TRAINER, "ready")
        self._end = _End(self._mailbox, invitation.receivers, own)
        self._made.callback(self._end.close)

    def _fetch(self, index: int, into: torch.Tensor) -> None:
        self._end.broadcast(index, into)
        self._await("taken", self._named(index))


class _End:
    """A rank of the group; the end of each broadcast is a signal to it, `taken` or `broken`."""

    def __init__(self, mailbox: Mailbox, receivers: int, host: str) -> None:
        self._mailbox = mailbox
        self._group: list[Group] = []
        try:
            self._group.append(gloo_group(mailbox.connection(), mailbox.me, receivers + 1, host, mailbox.timeout_s))
        except RuntimeError as error:
            raise WeightSyncError(f"the gloo group of {receivers + 1} was not made: {first_line(error)}") from None

    def broadcast(self, index: int, bucket: torch.Tensor) -> None:
        """Begin to send or to receive."""
        mailbox = self._mailbox

        def tell(done: torch.futures.Future[list[torch.Tensor]]) -> None:
            try:
                done.wait()
            except RuntimeError as error:
                mailbox.tell("broken", f"bucket {index}: {first_line(error)}")
            else:
                mailbox.tell("taken", index)

        try:
            broadcast(self._group[0], bucket, mailbox.timeout_s).get_future().add_done_callback(tell)
        except RuntimeError as error:
            raise WeightSyncError(f"bucket {index} can't be broadcast (gloo): {first_line(error)}") from None

    def close(self) -> None:
        """Leave the group."""
        # In a thread: this waits for what is under way, up to its time limit if the other end hangs.
        threading.Thread(target=self._group.clear, name="group left", daemon=True).start()

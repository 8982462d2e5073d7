"""The plane between GPUs: broadcasts of an NCCL group of its own, from the trainer's GPU to one GPU of each server.

On the trainer the next bucket is packed while one travels; on a server the next one arrives while one is copied to the host,
through pinned memory. That the GPU is done with a bucket is a signal too, from a thread that waits for it.

Invariant: an error or a dead peer never ends the process, as torch's watchdog of NCCL would have it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import distributed

from reward_loop.errors import WeightSyncError
from reward_loop.sync.planes.group import NcclGroup, broadcast, nccl_group
from reward_loop.sync.planes.mailbox import TRAINER, Mailbox, first_line
from reward_loop.sync.planes.plane import Ticket
from reward_loop.sync.planes.receiver import Receiver
from reward_loop.sync.planes.sender import SLOTS, Sender

_cuda: Any = torch.cuda
"""Streams and events, which torch does not type."""


class NcclSender(Sender):
    """The trainer's end, on `device`; a bucket is packed by kernels of the current stream."""

    name = "nccl"

    def __init__(self, device: torch.device, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(host, port)
        self._device = device

    def _prepare(self) -> Mapping[str, Any]:
        self._slots = _buffers(self._slot_bytes, self._device)
        return {}

    def _connect(self) -> None:
        self._collect("ready", "be ready for a group")  # to make one is a wait that no abort ends: nobody may have left before
        self._end = end = _End(self._mailbox, self._receivers, self._device)
        self._made.callback(lambda: end.close(finished=self._finished))
        # The next bucket is packed in the current stream, which does not wait for the broadcast of this one.
        self._aside = _cuda.Stream(self._device)

    def _dispatch(self, index: int) -> Collection[int]:
        self._end.broadcast(index, self._slot(index), self._aside)
        return [TRAINER]


class NcclReceiver(Receiver):
    """A server's end, on `device`, which must be no other end's."""

    def __init__(self, ticket: Ticket, timeout_s: float, device: torch.device) -> None:
        super().__init__(ticket, timeout_s)
        self._device = device
        self._begun = 0
        self._there = set[int]()

    def _connect(self, _welcome: Any) -> None:
        self._buffers = _buffers(self._slot_bytes, self._device)
        self._pinned = [torch.empty(self._slot_bytes, dtype=torch.uint8, pin_memory=True) for _ in range(SLOTS)]
        # One for each buffer: what comes into it next waits until it was copied, and the other buffer waits for neither.
        self._streams = [_cuda.Stream(self._device) for _ in range(SLOTS)]
        self._mailbox.post(TRAINER, "ready")
        self._end = end = _End(self._mailbox, self._invitation.receivers, self._device)
        self._made.callback(lambda: end.close(finished=self._next == self._invitation.buckets))

    def _fetch(self, index: int, into: torch.Tensor) -> None:
        while self._begun <= min(index + 1, self._invitation.buckets - 1):
            slot, size = self._begun % SLOTS, self._invitation.size(self._begun)
            with _cuda.stream(self._streams[slot]):
                self._end.broadcast(self._begun, self._buffers[slot][:size], self._streams[slot], self._pinned[slot][:size])
            self._begun += 1
        while index not in self._there:
            self._there.add(self._await("taken", self._named(index)).value)
        into.copy_(self._pinned[index % SLOTS][: into.numel()])


class _End:
    """A rank of the group, and a thread that sends it a signal when the GPU is done with a bucket: `taken`, or `broken`."""

    def __init__(self, mailbox: Mailbox, receivers: int, device: torch.device) -> None:
        if not distributed.is_nccl_available():
            raise WeightSyncError(f"this torch ({torch.__version__}) has no NCCL: use shm or gloo")
        self._mailbox = mailbox
        self._device = device
        try:
            self._group: NcclGroup = nccl_group(mailbox.connection(), mailbox.me, receivers + 1)
        except RuntimeError as error:
            raise WeightSyncError(f"the NCCL group of {receivers + 1} was not made: {first_line(error)}") from None
        self._watched: queue.SimpleQueue[tuple[int, Any] | None] = queue.SimpleQueue()
        threading.Thread(target=self._watch, name="nccl watched", daemon=True).start()

    def broadcast(self, index: int, bucket: torch.Tensor, then: Any, copy: torch.Tensor | None = None) -> None:
        """Begin it, after what the current stream was told to do; in the stream `then` it is waited for, and copied."""
        done = _cuda.Event(blocking=True)  # who waits for it sleeps
        try:
            with _cuda.device(self._device):
                # The first one makes the connections: it returns when all ends have come, or NCCL sees that one has died.
                work = broadcast(self._group, bucket, self._mailbox.timeout_s)
                with _cuda.stream(then):
                    work.wait()
                    if copy is not None:
                        copy.copy_(bucket, non_blocking=True)
                    done.record(then)
        except RuntimeError as error:
            raise WeightSyncError(f"bucket {index} can't be broadcast (nccl): {first_line(error)}") from None
        self._watched.put((index, done))

    def close(self, *, finished: bool) -> None:
        """End the group, without waiting for it."""
        self._watched.put(None)
        end = self._group.shutdown if finished else self._group.abort
        threading.Thread(target=end, name="nccl ended", daemon=True).start()

    def _watch(self) -> None:
        while (found := self._watched.get()) is not None:
            index, done = found
            try:
                done.synchronize()
            except RuntimeError as error:
                self._mailbox.tell("broken", f"bucket {index}: {first_line(error)}")
            else:
                # Of a group that was aborted the GPU is done too, without the trainer's bytes: the digests tell.
                self._mailbox.tell("taken", index)


def _buffers(size: int, device: torch.device) -> list[torch.Tensor]:
    try:
        return [torch.empty(size, dtype=torch.uint8, device=device) for _ in range(SLOTS)]
    except RuntimeError as error:
        raise WeightSyncError(f"no room for {SLOTS} buckets of {size} bytes on {device}: {first_line(error)}") from None

"""The plane of one machine: two slots in a file of /dev/shm, which the trainer fills in place.

The file has a name only from when all have joined until all have mapped it, a moment; what a trainer that was killed in that
moment left behind, the next one removes. Invariant: a file that has a name is locked as long as its trainer lives.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from reward_loop.errors import WeightSyncError
from reward_loop.sync.host import SHARED_MEMORY
from reward_loop.sync.planes.leftovers import abandoned, lock
from reward_loop.sync.planes.mailbox import TRAINER
from reward_loop.sync.planes.sender import SLOTS
from reward_loop.sync.planes.slots import SlotReceiver, SlotSender

_PREFIX = "reward-loop-weights-"


class SharedMemorySender(SlotSender):
    """The trainer's end; the weights may be on a GPU, the slots are in shared memory."""

    name = "shm"

    def _prepare(self) -> Mapping[str, Any]:
        for path in abandoned(SHARED_MEMORY.glob(f"{_PREFIX}*")):
            path.unlink(missing_ok=True)
        size = SLOTS * self._slot_bytes
        try:
            self._file = self._made.enter_context(os.fdopen(os.open(SHARED_MEMORY, os.O_TMPFILE | os.O_RDWR, 0o600), "r+b", 0))
            # Now, not page by page: where there is no room, a write to the mapping would kill this process.
            os.posix_fallocate(self._file.fileno(), 0, size)
        except OSError as error:
            raise WeightSyncError(
                f"no {size / 2**20:.0f} MiB of shared memory: {error}; enlarge {SHARED_MEMORY}, or use smaller buckets or gloo"
            ) from None
        lock(self._file.fileno())
        self._slots = _slots(self._file.fileno(), self._slot_bytes)
        self._path: Path | None = None
        self._made.callback(self._unlink)
        return {}

    def _welcome(self) -> str:
        if self._path is None:
            path = SHARED_MEMORY / f"{_PREFIX}{os.getpid()}-{os.urandom(6).hex()}"
            file = self._file.fileno()
            # The directory is not used, since the path is absolute; but without one Python's link follows no link.
            os.link(f"/proc/self/fd/{file}", path, src_dir_fd=file, follow_symlinks=True)
            self._path = path
        return self._path.name

    def _connect(self) -> None:
        self._collect("mapped", "map the shared memory")
        self._unlink()

    def _unlink(self) -> None:
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            self._path = None


class SharedMemoryReceiver(SlotReceiver):
    """A server's end."""

    def _connect(self, welcome: Any) -> None:
        name = str(welcome)
        if not name.startswith(_PREFIX) or "/" in name:
            raise WeightSyncError(f"{name!r} is no shared memory of a trainer")
        self._made.callback(self._forget)
        try:
            with (SHARED_MEMORY / name).open("r+b", 0) as file:
                self._slots = _slots(file.fileno(), self._slot_bytes)
        except (OSError, ValueError) as error:
            raise WeightSyncError(
                f"the trainer's shared memory can't be mapped: {error}; is the trainer on this machine, and in a container that "
                "shares its /dev/shm? Else use gloo"
            ) from None
        self._mailbox.post(TRAINER, "mapped")


def _slots(file: int, size: int) -> list[torch.Tensor]:
    # The mapping lives as long as a tensor that uses it.
    whole = torch.frombuffer(mmap.mmap(file, SLOTS * size), dtype=torch.uint8)
    return [whole[slot * size : (slot + 1) * size] for slot in range(SLOTS)]

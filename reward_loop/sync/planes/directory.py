"""The plane of a directory that trainer and servers both see: one safetensors file, which gets its name when it is whole.

A server without this package can read it too: `DirectorySender.folder` is what it has to load, between `flush` and `close`.
Invariants: nobody sees a file that is not whole; with the plane's end the file is gone.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from reward_loop.errors import WeightSyncError
from reward_loop.sync.host import host_id
from reward_loop.sync.planes.leftovers import abandoned, lock
from reward_loop.sync.planes.mailbox import TRAINER
from reward_loop.sync.planes.receiver import Receiver
from reward_loop.sync.planes.sender import SLOTS, Sender
from reward_loop.sync.whole_io import read_at, write_at

NAME = "model.safetensors"
"""As checkpoints have it."""
_OLD_S = 60.0


class DirectorySender(Sender):
    """The trainer's end; each update has a folder of its own in `directory`."""

    name = "directory"
    folder: Path
    """That of this update."""

    def __init__(self, directory: str | Path, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(host, port)
        self._directory = Path(directory).absolute()

    def _prepare(self) -> Mapping[str, Any]:
        self._header = self._manifest.safetensors_header({"format": "pt"})
        self._slots = [torch.empty(self._slot_bytes, dtype=torch.uint8) for _ in range(SLOTS)]
        try:
            self.folder = self._make_folder()
            self._part = self.folder / f".{NAME}.part"
            self._file = self._made.enter_context(self._part.open("xb", 0))
            write_at(self._file.fileno(), memoryview(self._header), 0)
        except OSError as error:
            raise WeightSyncError(f"no file can be written in {self._directory}: {error}") from None
        self._writer = ThreadPoolExecutor(1, "weights written")
        self._made.callback(self._writer.shutdown, cancel_futures=True)
        return {"path": str(self.folder / NAME), "header_bytes": len(self._header)}

    def _dispatch(self, index: int) -> Collection[int]:
        offset = len(self._header) + index * self._manifest.bucket_bytes
        mailbox, part = self._mailbox, self._part

        def tell(done: Future[None]) -> None:
            if done.cancelled():
                return
            error = done.exception()
            mailbox.tell(*(("taken", index) if error is None else ("broken", f"{part}: {error}")))

        self._writer.submit(write_at, self._file.fileno(), _bytes_of(self._slot(index)), offset).add_done_callback(tell)
        return [TRAINER]

    def _seal(self) -> None:
        try:
            self._file.close()  # before it has its name: other machines see what was written when it is closed
            self._part.rename(self.folder / NAME)
        except OSError as error:
            raise WeightSyncError(f"{self._part} was not finished: {error}") from None
        for number in self._everyone:
            self._mailbox.post(number, "whole")

    def _make_folder(self) -> Path:
        """Return a new folder, locked; those that trainers of this machine left when they were killed are removed."""
        prefix = f"update-{zlib.crc32(host_id().encode()):08x}-"  # of others it can't know which are locked
        self._directory.mkdir(parents=True, exist_ok=True)
        for old in abandoned(self._directory.glob(f"{prefix}*")):
            if old.stat().st_mtime < time.time() - _OLD_S:  # a new one may not be locked yet
                shutil.rmtree(old, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=self._directory))
        self._made.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o755)  # servers may run as another user
        locked = os.open(folder, os.O_RDONLY)
        self._made.callback(os.close, locked)
        lock(locked)
        return folder


class DirectoryReceiver(Receiver):
    """A server's end."""

    _file: int | None = None

    def _fetch(self, index: int, into: torch.Tensor) -> None:
        path = str(self._ticket.get("path"))
        try:
            if self._file is None:
                self._await("whole", f"word that {path} is whole")
                self._file = os.open(path, os.O_RDONLY)
                self._made.callback(os.close, self._file)
            offset = int(self._ticket["header_bytes"]) + index * self._invitation.bucket_bytes
            read_at(self._file, _bytes_of(into), offset)
        except (KeyError, TypeError, ValueError) as error:
            raise WeightSyncError(f"no ticket of a directory: {error!r}; {self._ticket!r:.200}") from None
        except OSError as error:
            raise WeightSyncError(
                f"{self._named(index)} can't be read from {path}: {error}; trainer and servers must see the same directory"
            ) from None


def _bytes_of(memory: torch.Tensor) -> memoryview:
    array: Any = memory.numpy()
    return memoryview(array)

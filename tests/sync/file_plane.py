"""A plane that is as simple as one can be: each bucket is a file, which the trainer writes and a server waits for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from reward_loop.errors import WeightSyncError
from reward_loop.sync.manifest import Manifest
from reward_loop.sync.planes.plane import PlaneName, Ticket


class FilePlane:
    """The trainer's end, in a directory; `silent`: it never sends; `breaks`: it fails at this bucket."""

    def __init__(self, directory: Path, *, silent: bool = False, breaks: int | None = None, spoils: bool = False) -> None:
        self.directory = directory
        self.log: list[str] = []
        self._silent = silent
        self._breaks = breaks
        self._spoils = spoils
        self._aborted = False
        self._opened = 0
        self._buffers: dict[int, torch.Tensor] = {}
        self._manifest: Manifest | None = None

    @property
    def plane(self) -> PlaneName:
        return "directory"

    @property
    def _folder(self) -> Path:
        return self.directory / str(self._opened)

    def open(self, manifest: Manifest, receivers: int, timeout_s: float) -> Sequence[Ticket]:
        self.log.append("open")
        self._opened += 1
        self._manifest = manifest
        self._folder.mkdir(parents=True)
        return [{"plane": "file", "directory": str(self._folder), "timeout_s": timeout_s}] * receivers

    def buffer(self, index: int) -> torch.Tensor:
        assert self._manifest is not None
        return self._buffers.setdefault(index, torch.zeros(self._manifest.bucket_size(index), dtype=torch.uint8))

    def send(self, index: int) -> None:
        self.log.append(f"send {index}")
        while self._silent:
            if self._aborted:
                raise WeightSyncError("the plane was aborted")
            time.sleep(0.005)
        if index == self._breaks:
            (self._folder / "broken").touch()
            raise WeightSyncError(f"the plane broke at bucket {index}")
        bucket = self._buffers.pop(index)
        if self._spoils:
            bucket[0] ^= 1
        temporary = self._folder / f".{index}"
        temporary.write_bytes(bucket.numpy().tobytes())
        temporary.rename(self._folder / str(index))

    def flush(self) -> None:
        self.log.append("flush")

    def abort(self) -> None:
        self._aborted = True

    def close(self) -> None:
        self.log.append("close")
        self._aborted = False


def received(ticket: dict[str, Any], index: int) -> torch.Tensor | None:
    """Return a bucket if it has arrived; raises WeightSyncError when none will come any more."""
    if (Path(ticket["directory"]) / "broken").exists():
        raise WeightSyncError("the trainer is gone")
    file = Path(ticket["directory"]) / str(index)
    return torch.from_numpy(np.fromfile(file, dtype=np.uint8)) if file.exists() else None

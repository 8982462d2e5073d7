"""The file that an update is received in: a safetensors file, mapped into memory, filled bucket by bucket.

Its pages belong to the file, not to the process: what is not in use just now is released, and the operating system may write it
to the disk. Invariant: the file has its room before the first byte comes, since a full disk would end the process that writes
to the mapping.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Self

import torch

from reward_loop.sync.manifest import DTYPES, Manifest

_MADV_DONTNEED, _MADV_POPULATE_WRITE = 4, 23
_RELEASED_BEHIND = 2
"""Buckets behind the one that is being loaded whose pages are kept: a layer's tensors may lie in two."""


Weights = Iterator[tuple[str, torch.Tensor]]


class StagedFile:
    """The update that `manifest` describes, in the file at `path`, mapped for reading and writing."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        """Map a file that was made by `create`."""
        self.manifest = manifest
        header = len(manifest.safetensors_header())
        with path.open("r+b") as file:
            mapped = mmap.mmap(file.fileno(), header + manifest.nbytes)
        self._stream = torch.frombuffer(mapped, dtype=torch.uint8)[header:]
        self._madvise = ctypes.CDLL(None, use_errno=True).madvise

    @classmethod
    def create(cls, path: Path, manifest: Manifest) -> Self:
        """Make the file, with its header and the room for the rest, in place of another; raises OSError if there is none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # who still writes to an aborted update must not write to this one
        header = manifest.safetensors_header()
        with path.open("xb") as file:
            try:
                os.posix_fallocate(file.fileno(), 0, len(header) + manifest.nbytes)
            except OSError as error:
                path.unlink()
                megabytes = manifest.nbytes / 1e6
                raise OSError(error.errno, f"no room for {megabytes:.0f} MB: {error.strerror}", str(path)) from None
            file.write(header)
        return cls(path, manifest)

    def close(self) -> None:
        """Let go of the file, which may be its end, and then takes a while; nothing else may be asked of this afterwards."""
        del self._stream

    def bucket(self, index: int) -> torch.Tensor:
        """Return bucket `index` of the stream, uint8, to be filled or read."""
        begin = index * self.manifest.bucket_bytes
        return self._stream[begin : begin + self.manifest.bucket_size(index)]

    def make_ready(self, index: int) -> None:
        """Have the pages of a bucket in memory, so that filling it waits for none: half of the time of a copy would be theirs."""
        self._advise(index, _MADV_POPULATE_WRITE)  # refused before Linux 5.14: then they come one by one

    def release(self, index: int) -> None:
        """Take the pages of a bucket out of this process's memory; they come again when they are looked at."""
        self._advise(index, _MADV_DONTNEED)

    def weights(self, names: Collection[str]) -> Weights:
        """Yield these tensors in the order of the stream, and release the pages of those that were yielded before."""
        released, wanted = 0, frozenset(names)
        for spec in self.manifest.tensors:
            if spec.name not in wanted:
                continue
            begin = self.manifest.offsets[spec.name]
            yield spec.name, self._stream[begin : begin + spec.nbytes].view(DTYPES[spec.dtype]).view(spec.shape)
            while released < begin // self.manifest.bucket_bytes - _RELEASED_BEHIND:
                self.release(released)
                released += 1
        for index in range(released, self.manifest.buckets):
            self.release(index)

    def _advise(self, index: int, advice: int) -> None:
        bucket = self.bucket(index)
        begin = -(-bucket.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        size = bucket.data_ptr() + bucket.numel() - begin
        if size > 0:
            # ctypes, not mmap.madvise: other threads go on meanwhile.
            self._madvise(ctypes.c_void_p(begin), ctypes.c_size_t(size), ctypes.c_int(advice))

"""The file that an update is received in: a safetensors file, written bucket by bucket, and then mapped into memory.

Its pages belong to the file, not to the process: what is not in use just now is released, and the operating system may write it
to the disk. Invariant: the file has its room before the first byte comes, so that a full disk is noticed before anything travels.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import weakref
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Self

import torch

from reward_loop.sync.manifest import DTYPES, Manifest
from reward_loop.sync.whole_io import write_at

_MADV_DONTNEED = 4
_RELEASED_BEHIND = 2
"""Buckets behind the one that is being loaded whose pages are kept: a layer's tensors may lie in two."""


Weights = Iterator[tuple[str, torch.Tensor]]


class StagedFile:
    """The update that `manifest` describes, in the file at `path`."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        """Map a file that was made by `create`."""
        self.manifest = manifest
        self._header_bytes = len(manifest.safetensors_header())
        # Held open: an update that was aborted must not find the next one at its path.
        self._file = os.open(path, os.O_RDWR)
        self._closed = weakref.finalize(self, os.close, self._file)
        mapped = mmap.mmap(self._file, self._header_bytes + manifest.nbytes)
        self._stream = torch.frombuffer(mapped, dtype=torch.uint8)[self._header_bytes :]
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
        self._closed()
        del self._stream

    def write(self, index: int, bucket: torch.Tensor) -> None:
        """Write bucket `index` (uint8, of its size); raises OSError."""
        # Not by the mapping: getting its pages one by one takes twice as long as writing all of them.
        array: Any = bucket.numpy()
        write_at(self._file, memoryview(array), self._header_bytes + index * self.manifest.bucket_bytes)

    def bucket(self, index: int) -> torch.Tensor:
        """Return bucket `index` of the stream, uint8, to be read."""
        begin = index * self.manifest.bucket_bytes
        return self._stream[begin : begin + self.manifest.bucket_size(index)]

    def weights(self, names: Collection[str]) -> Weights:
        """Yield these tensors in the order of the stream, and release the pages of those that were yielded before."""
        released, wanted = 0, frozenset(names)
        for spec in self.manifest.tensors:
            if spec.name not in wanted:
                continue
            begin = self.manifest.offsets[spec.name]
            yield spec.name, self._stream[begin : begin + spec.nbytes].view(DTYPES[spec.dtype]).view(spec.shape)
            while released < begin // self.manifest.bucket_bytes - _RELEASED_BEHIND:
                self._release(released)
                released += 1
        for index in range(released, self.manifest.buckets):
            self._release(index)

    def _release(self, index: int) -> None:
        """Take the pages of a bucket out of this process's memory; they come again when they are looked at."""
        bucket = self.bucket(index)
        begin = -(-bucket.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        size = bucket.data_ptr() + bucket.numel() - begin
        if size > 0:
            # ctypes, not mmap.madvise: other threads go on meanwhile.
            self._madvise(ctypes.c_void_p(begin), ctypes.c_size_t(size), ctypes.c_int(_MADV_DONTNEED))

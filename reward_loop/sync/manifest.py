"""What an update holds: names, types and shapes, and where the bytes of each tensor lie in the stream of buckets.

The stream is the data section of a safetensors file: tensors without gaps, those with the widest elements first, so that each
begins at a multiple of its element's size. Buckets are slices of it of a fixed size; a tensor may span several.

Invariants: both ends derive the same layout from the same tensors; a bucket's size is a multiple of ALIGNMENT.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import torch

from reward_loop.errors import WeightSyncError

ALIGNMENT = 64
"""Bytes."""
DTYPES: Mapping[str, torch.dtype] = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""Types that a served model takes; others would be cast without a word, or not at all."""
_IN_SAFETENSORS = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor as a checkpoint would have it."""

    name: str
    dtype: str
    """A key of DTYPES."""
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Size of its data."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a tensor that lies in one bucket; offsets in bytes."""

    tensor: TensorSpec
    in_tensor: int
    in_bucket: int
    nbytes: int


@dataclass(frozen=True)
class Manifest:
    """The tensors of one update, in the order of the stream, and the size of its buckets."""

    tensors: tuple[TensorSpec, ...]
    bucket_bytes: int

    @classmethod
    def of(cls, tensors: Iterable[TensorSpec], bucket_bytes: int) -> Self:
        """Lay out these tensors; raises WeightSyncError if there are none, a name comes twice, or a type can't be served."""
        given = list(tensors)
        if not given:
            raise WeightSyncError("the update holds no tensor")
        if bucket_bytes <= 0 or bucket_bytes % ALIGNMENT:
            raise WeightSyncError(f"bucket_bytes={bucket_bytes} must be a positive multiple of {ALIGNMENT}")
        for tensor in given:
            if tensor.dtype not in DTYPES:
                raise WeightSyncError(
                    f"{tensor.name} is {tensor.dtype}; a served weight is one of {', '.join(DTYPES)}: cast it first"
                )
            if any(size <= 0 for size in tensor.shape):
                raise WeightSyncError(f"{tensor.name} has the shape {tensor.shape}: it is empty")
        if len({tensor.name for tensor in given}) < len(given):
            twice = sorted({tensor.name for tensor in given if sum(other.name == tensor.name for other in given) > 1})
            raise WeightSyncError(f"the update names {', '.join(twice)} twice")
        return cls(tuple(sorted(given, key=lambda tensor: -DTYPES[tensor.dtype].itemsize)), bucket_bytes)

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Return the manifest that `as_json` gave; raises WeightSyncError for anything else."""
        try:
            tensors = [TensorSpec(str(one["name"]), str(one["dtype"]), tuple(map(int, one["shape"]))) for one in value["tensors"]]
            bucket_bytes = int(value["bucket_bytes"])
        except (TypeError, KeyError, ValueError) as error:
            raise WeightSyncError(f"no manifest of an update: {error!r}; {value!r:.200}") from None
        return cls.of(tensors, bucket_bytes)

    def as_json(self) -> dict[str, Any]:
        """Return plain values for a JSON body."""
        tensors = [{"name": one.name, "dtype": one.dtype, "shape": list(one.shape)} for one in self.tensors]
        return {"bucket_bytes": self.bucket_bytes, "tensors": tensors}

    @cached_property
    def nbytes(self) -> int:
        """Size of the stream."""
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def buckets(self) -> int:
        """How many buckets there are."""
        return -(-self.nbytes // self.bucket_bytes)

    def bucket_size(self, index: int) -> int:
        """Bytes of this bucket: all but the last are full."""
        return min(self.bucket_bytes, self.nbytes - index * self.bucket_bytes)

    @cached_property
    def offsets(self) -> Mapping[str, int]:
        """Where each tensor begins in the stream."""
        begins, offset = dict[str, int](), 0
        for tensor in self.tensors:
            begins[tensor.name] = offset
            offset += tensor.nbytes
        return begins

    @cached_property
    def pieces(self) -> Sequence[Sequence[Piece]]:
        """For each bucket, what lies in it, in order."""
        found: list[list[Piece]] = [[] for _ in range(self.buckets)]
        for tensor in self.tensors:
            for piece, bucket in self._cut(tensor):
                found[bucket].append(piece)
        return found

    def safetensors_header(self, metadata: Mapping[str, str] | None = None) -> bytes:
        """Return what precedes the stream in a safetensors file; its length is a multiple of ALIGNMENT."""
        header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
        for tensor in self.tensors:
            begin = self.offsets[tensor.name]
            header[tensor.name] = {
                "dtype": _IN_SAFETENSORS[tensor.dtype],
                "shape": list(tensor.shape),
                "data_offsets": [begin, begin + tensor.nbytes],
            }
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-(len(text) + 8) % ALIGNMENT)
        return len(text).to_bytes(8, "little") + text

    def _cut(self, tensor: TensorSpec) -> Iterator[tuple[Piece, int]]:
        begin, done = self.offsets[tensor.name], 0
        while done < tensor.nbytes:
            bucket, at = divmod(begin + done, self.bucket_bytes)
            size = min(self.bucket_bytes - at, tensor.nbytes - done)
            yield Piece(tensor, done, at, size), bucket
            done += size

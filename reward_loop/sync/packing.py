"""Tensors to the bytes of a bucket, and the bytes of the stream back to tensors; nothing is cast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from reward_loop.errors import WeightSyncError
from reward_loop.sync.manifest import DTYPES, Manifest, Piece


def pack(bucket: torch.Tensor, pieces: Sequence[Piece], tensors: Mapping[str, torch.Tensor]) -> None:
    """Fill a bucket (uint8, on any device) with these pieces of `tensors`, which may be on any device and need not be contiguous.

    Raises WeightSyncError for a tensor that is missing, or is not what the manifest says of it.
    """
    with torch.no_grad():
        for piece in pieces:
            tensor = _checked(piece, tensors)
            begin, end = piece.in_bucket, piece.in_bucket + piece.nbytes
            first = piece.in_tensor // tensor.element_size()
            _copy(bucket[begin:end].view(tensor.dtype), tensor, first)


def unpack(stream: torch.Tensor, manifest: Manifest) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield name and tensor for everything in a stream (uint8, the data section of a safetensors file); they share its memory."""
    for spec in manifest.tensors:
        begin = manifest.offsets[spec.name]
        yield spec.name, stream[begin : begin + spec.nbytes].view(DTYPES[spec.dtype]).view(spec.shape)


def _checked(piece: Piece, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    spec = piece.tensor
    tensor = tensors.get(spec.name)
    if tensor is None:
        raise WeightSyncError(f"{spec.name} is in the manifest, but not among the tensors to send")
    if tensor.dtype is not DTYPES[spec.dtype] or tuple(tensor.shape) != spec.shape:
        raise WeightSyncError(
            f"{spec.name} is {str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}, "
            f"the manifest says {spec.dtype} {spec.shape}: make the manifest of the tensors that are sent"
        )
    return tensor


def _copy(into: torch.Tensor, tensor: torch.Tensor, first: int) -> None:
    """Copy elements of `tensor`, in row-major order from element `first` on, until `into` (one dimension) is full."""
    count = into.numel()
    if count == 0:
        return
    if tensor.is_contiguous():
        into.copy_(tensor.view(-1)[first : first + count])
        return
    # Whole rows go in one copy, straight from where they are; those that are cut off at either end are tensors themselves.
    row = tensor[0].numel()
    begin = -(-first // row)
    end = (first + count) // row
    if begin > end:  # it all lies in one row
        _copy(into, tensor[end], first - end * row)
        return
    head = begin * row - first
    body = (end - begin) * row
    if head:
        _copy(into[:head], tensor[begin - 1], row - head)
    if body:
        into[head : head + body].view(end - begin, *tensor.shape[1:]).copy_(tensor[begin:end])
    if head + body < count:
        _copy(into[head + body :], tensor[end], 0)

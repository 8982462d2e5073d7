"""The plane of one GPU: two buckets in its memory, which the trainer fills and the receivers see by CUDA IPC.

Handles travel as plain values, never as pickles: who can post to a server must not be able to run code in it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import torch
from torch.multiprocessing.reductions import rebuild_cuda_tensor

from reward_loop.errors import WeightSyncError
from reward_loop.sync.planes.mailbox import first_line
from reward_loop.sync.planes.plane import Ticket
from reward_loop.sync.planes.sender import SLOTS
from reward_loop.sync.planes.slots import SlotReceiver, SlotSender


class CudaIpcSender(SlotSender):
    """The trainer's end, on `device`; a bucket is packed by kernels of the current stream."""

    name = "cuda_ipc"

    def __init__(self, device: torch.device, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(host, port)
        self._device = device

    def _prepare(self) -> Mapping[str, Any]:
        try:
            self._slots = [torch.empty(self._slot_bytes, dtype=torch.uint8, device=self._device) for _ in range(SLOTS)]
        except RuntimeError as error:
            raise WeightSyncError(f"no room for {SLOTS} buckets on {self._device}: {first_line(error)}") from None
        return {"gpu": str(torch.cuda.get_device_properties(self._device).uuid)}

    def _welcome(self) -> Any:
        # For each receiver anew: an export counts the references of one importer.
        return [_exported(slot) for slot in self._slots]

    def _filled(self) -> None:
        torch.cuda.current_stream(self._device).synchronize()


class CudaIpcReceiver(SlotReceiver):
    """A server's end; the trainer's GPU must be among those that the server sees."""

    def __init__(self, ticket: Ticket, timeout_s: float) -> None:
        super().__init__(ticket, timeout_s)
        self._gpu = str(ticket.get("gpu"))

    def _connect(self, welcome: Any) -> None:
        device = _device(self._gpu)
        self._made.callback(self._forget)
        try:
            self._slots = [_imported(handle, self._slot_bytes, device) for handle in welcome]
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise WeightSyncError(f"the trainer's buckets on GPU {self._gpu} can't be opened: {first_line(error)}") from None


def _device(uuid: str) -> int:
    """Return the number that the GPU has in this process."""
    seen = [str(torch.cuda.get_device_properties(index).uuid) for index in range(torch.cuda.device_count())]
    if uuid not in seen:
        raise WeightSyncError(
            f"the trainer's GPU {uuid} is not among the server's, {', '.join(seen) or 'none'}: use nccl or gloo"
        )
    return seen.index(uuid)


def _exported(slot: torch.Tensor) -> Mapping[str, Any]:
    """Return what another process needs to see this memory, as plain values."""
    storage: Any = slot.untyped_storage()
    _, handle, nbytes, offset, counter, counter_offset, event, event_required = storage._share_cuda_()
    return {
        "handle": _text(handle),
        "nbytes": nbytes,
        "offset": offset,
        "counter": _text(counter),
        "counter_offset": counter_offset,
        "event": _text(event),
        "event_required": event_required,
    }


def _imported(handle: Mapping[str, Any], size: int, device: int) -> torch.Tensor:
    """Return the memory that another process exported, uint8."""
    rebuild: Any = rebuild_cuda_tensor
    imported: torch.Tensor = rebuild(
        tensor_cls=torch.Tensor,
        tensor_size=(size,),
        tensor_stride=(1,),
        tensor_offset=0,
        storage_cls=torch.UntypedStorage,
        dtype=torch.uint8,
        storage_device=device,
        storage_handle=_bytes(handle["handle"]),
        storage_size_bytes=int(handle["nbytes"]),
        storage_offset_bytes=int(handle["offset"]),
        requires_grad=False,
        ref_counter_handle=_bytes(handle["counter"]),
        ref_counter_offset=int(handle["counter_offset"]),
        event_handle=_bytes(handle["event"]),
        event_sync_required=bool(handle["event_required"]),
    )
    return imported


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)

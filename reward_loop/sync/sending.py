"""The trainer's half of a transfer: bucket by bucket, the next one packed while the last one travels."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from concurrent.futures import Executor
from typing import Any, TypeVar

import torch

from reward_loop.errors import WeightSyncError
from reward_loop.sync.digest import digest_of
from reward_loop.sync.manifest import Manifest
from reward_loop.sync.packing import pack
from reward_loop.sync.planes.plane import TensorCommunicator

T = TypeVar("T")

_GRACE_S = 2.0
"""Seconds that servers have to say why, once the trainer's end of the plane has failed: they know which tensor it was."""


def send_all(comm: TensorCommunicator, manifest: Manifest, tensors: Mapping[str, torch.Tensor]) -> tuple[str, ...]:
    """Send every bucket of an open plane and return their digests, once all have arrived; blocks, and raises WeightSyncError."""
    digests: list[str] = []
    for index in range(manifest.buckets):
        bucket = comm.buffer(index)
        pack(bucket, manifest.pieces[index], tensors)
        digests.append(digest_of(bucket))
        comm.send(index)
    comm.flush()
    return tuple(digests)


async def travelled(
    comm: TensorCommunicator,
    manifest: Manifest,
    tensors: Mapping[str, torch.Tensor],
    receiving: Coroutine[Any, Any, T],
    thread: Executor,
) -> tuple[tuple[str, ...], T]:
    """Send in a `thread` while servers receive, and return the digests of what was sent and what `receiving` returns.

    Whichever end fails, or is cancelled, the other one ends soon too. Raises WeightSyncError with what both said.
    """
    there: asyncio.Future[T] = asyncio.create_task(receiving, name="servers receive")
    here: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().run_in_executor(thread, send_all, comm, manifest, tensors)
    ends: list[asyncio.Future[Any]] = [there, here]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_EXCEPTION)
        if here.done() and here.exception() is not None:
            await asyncio.wait([there], timeout=_GRACE_S)
    finally:
        if not here.done():
            comm.abort()
        there.cancel()
        await asyncio.wait(ends)
        why_there, why_here = (None if each.cancelled() else each.exception() for each in (there, here))
    if isinstance(why_there, WeightSyncError) and isinstance(why_here, WeightSyncError):
        raise WeightSyncError(f"{why_there}; the trainer's end: {why_here}") from why_there
    if why_there is not None:
        raise why_there from why_here
    return await here, await there

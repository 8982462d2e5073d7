"""Trainers and servers as real processes: the ends of a plane without the HTTP between them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import torch

from reward_loop.errors import WeightSyncError
from reward_loop.sync.manifest import Manifest, TensorSpec
from reward_loop.sync.packing import pack
from reward_loop.sync.planes.choice import communicator_of
from reward_loop.sync.planes.plane import PlaneName, TensorCommunicator, Ticket
from reward_loop.sync.planes.receivers import receiver_of

BUCKET_BYTES = 1 << 15
PATIENCE_S = 30.0
"""Longer than anything here lasts: what ends sooner did not end by a time limit."""

# Torch is imported once, by the process from which the others are forked.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([__name__])


def weights(seed: int = 0) -> dict[str, torch.Tensor]:
    """Tensors of three types, of which one spans several buckets, and the last bucket is not full."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {"norm": (7,), "embed": (160, 256), "layer.bias": (333,), "score": (1, 64), "scale": ()}
    types = {"embed": torch.float32, "score": torch.float16}
    return {name: torch.randn(shape, generator=generator).to(types.get(name, torch.bfloat16)) for name, shape in shapes.items()}


def manifest_of(tensors: dict[str, torch.Tensor], bucket_bytes: int = BUCKET_BYTES) -> Manifest:
    """The manifest of an update with these tensors."""
    specs = [TensorSpec(name, str(each.dtype).removeprefix("torch."), tuple(each.shape)) for name, each in tensors.items()]
    return Manifest.of(specs, bucket_bytes)


def stream_of(tensors: dict[str, torch.Tensor]) -> bytes:
    """What a receiver should have in the end."""
    return b"".join(tensors[spec.name].view(-1).view(torch.uint8).numpy().tobytes() for spec in manifest_of(tensors).tensors)


def send(trainer: TensorCommunicator, tensors: dict[str, torch.Tensor], buckets: Sequence[int] | None = None) -> None:
    """Send these buckets (None: all of them, and wait until they have arrived)."""
    manifest = manifest_of(tensors)
    for index in range(manifest.buckets) if buckets is None else buckets:
        pack(trainer.buffer(index), manifest.pieces[index], tensors)
        trainer.send(index)
    if buckets is None:
        trainer.flush()


class End:
    """A process that runs `play(connection, *arguments)`; it is killed with the block."""

    def __init__(self, play: Callable[..., None], *arguments: object) -> None:
        self._ours, theirs = _context.Pipe()
        self._process = _context.Process(target=play, args=(theirs, *arguments), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._ours.close()

    def told(self) -> Any:
        """The next thing that the process tells."""
        assert self._ours.poll(PATIENCE_S), "it tells nothing"
        return self._ours.recv()

    def tell(self, what: object) -> None:
        """Tell the process something."""
        self._ours.send(what)

    def kill(self) -> None:
        """SIGKILL it, and return when it is gone."""
        self._process.kill()
        self._process.join()


def server(
    told: Connection, ticket: Ticket, timeout_s: float, killed_at: int | None, stops_at: int | None, device: str | None
) -> None:
    """Receive everything, and tell the bytes or why there are none.

    `killed_at`: dies before this bucket; `stops_at`: tells "there" before this bucket, and takes no more; `device`: its GPU.
    """
    torch.set_num_threads(1)
    data = torch.zeros(ticket["nbytes"], dtype=torch.uint8)
    try:
        with closing(receiver_of(ticket, timeout_s, torch.device(device) if device else None)) as receiver:
            for index, begin in enumerate(range(0, data.numel(), ticket["bucket_bytes"])):
                if index == killed_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                if index == stops_at:
                    told.send("there")
                    signal.pause()
                receiver.receive(index, data[begin : begin + ticket["bucket_bytes"]])
            told.send(data.numpy().tobytes())
    except WeightSyncError as error:
        told.send(error)


def server_that_aborts(told: Connection, ticket: Ticket, timeout_s: float) -> None:
    """Wait for buckets that do not come, and abort from another thread when told to."""
    receiver = receiver_of(ticket, timeout_s)

    def abort() -> None:
        told.recv()
        receiver.abort()

    threading.Thread(target=abort).start()
    with closing(receiver):
        try:
            for index in range(-(-ticket["nbytes"] // ticket["bucket_bytes"])):
                receiver.receive(index, torch.zeros(ticket["bucket_bytes"], dtype=torch.uint8))
        except WeightSyncError as error:
            told.send(error)


def trainer(told: Connection, plane: PlaneName, directory: Path, receivers: int, sends: int | None) -> None:
    """Tell the tickets, and send so many buckets (None: not even the first wait); then wait to be killed."""
    communicator = communicator_of(plane, directory=directory)
    told.send(communicator.open(manifest_of(weights()), receivers, PATIENCE_S))
    if sends is not None:
        send(communicator, weights(), range(sends))
        told.send("sent")
    signal.pause()


def serve(
    ticket: Ticket,
    timeout_s: float = PATIENCE_S,
    *,
    killed_at: int | None = None,
    stops_at: int | None = None,
    device: str | None = None,
) -> End:
    """Start a server's end."""
    return End(server, ticket, timeout_s, killed_at, stops_at, device)


class Clock:
    """Asserts that a block took at most so long."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *raised: object) -> None:
        took_s = time.monotonic() - self._began
        assert raised[0] is not None or took_s <= self._limit_s, f"it took {took_s:.1f} s"

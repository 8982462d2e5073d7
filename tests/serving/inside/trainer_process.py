"""A trainer in a process of its own: `python -m tests.serving.inside.trainer_process`, told what to do line by line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch

from reward_loop.sync.digest import digest_of
from reward_loop.sync.manifest import DTYPES, Manifest
from reward_loop.sync.packing import pack
from reward_loop.sync.planes.choice import communicator_of
from reward_loop.sync.planes.plane import TensorCommunicator
from tests.processes import ROOT


def tensors_of(manifest: Manifest, *, nan: str = "") -> dict[str, torch.Tensor]:
    """Return the tensors of an update: the same at both ends. The last element of the one named `nan` is NaN."""
    generator = torch.Generator().manual_seed(0)
    tensors = {spec.name: torch.randn(spec.shape, generator=generator).to(DTYPES[spec.dtype]) for spec in manifest.tensors}
    for name in filter(None, [nan]):
        tensors[name].view(-1)[-1] = torch.nan
    return tensors


class Trainer:
    """The process, seen from the test."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def sends(self, manifest: Manifest, plane: str, *, buckets: int = 1000, nan: str = "") -> dict[str, Any]:
        """Let it open a plane, and send so many buckets to one receiver; returns the receiver's ticket."""
        self._say({"manifest": manifest.as_json(), "plane": plane, "buckets": buckets, "nan": nan})
        ticket: dict[str, Any] = self.hears()
        return ticket

    def hears(self) -> Any:
        """Return its next word: the digests of what it sent, when that has left."""
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def _say(self, order: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()


@contextmanager
def running() -> Generator[Trainer]:
    """Have a trainer for the time of the block."""
    command = [sys.executable, "-m", "tests.serving.inside.trainer_process"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Trainer(process)
        finally:
            process.kill()


def _say(word: object) -> None:
    sys.stdout.write(json.dumps(word) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Do what the lines of the standard input say."""
    unfinished: list[TensorCommunicator] = []  # closed by the end of the process
    for line in sys.stdin:
        order = json.loads(line)
        manifest = Manifest.from_json(order["manifest"])
        tensors = tensors_of(manifest, nan=order["nan"])
        communicator = communicator_of(order["plane"])
        [ticket] = communicator.open(manifest, 1, 20.0)
        _say(ticket)
        digests: list[str] = []
        for index in range(min(order["buckets"], manifest.buckets)):
            bucket = communicator.buffer(index)
            pack(bucket, manifest.pieces[index], tensors)
            digests.append(digest_of(bucket))
            communicator.send(index)
        if len(digests) == manifest.buckets and not order["nan"]:
            communicator.flush()
            communicator.close()
        else:
            unfinished.append(communicator)
        _say(digests)


if __name__ == "__main__":
    main()

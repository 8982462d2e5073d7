"""What it costs to publish weights to running servers, as ratios within one run, with a model of about 1 GB.

python benchmarks/weight_sync.py [--rounds 3] [--servers 1,2] [--planes shm,gloo,directory] [--hidden 1152] [--layers 22]

Each round publishes all weights of the model to real vLLM servers, and then carries the same tensors raw, on the same plane: in
gloo and NCCL a broadcast of each tensor into memory that is already there, through shared memory and CUDA IPC a copy in and a
copy out, through a directory safetensors' own file written and then read. Ratios, each the median over the rounds:

- transfer / raw: from the first byte until all servers have received and checked everything;
- pause / publish: how long the server that paused longest took no requests, in the time of the whole publish;
- memory: what the server's processes take at most during a publish, beyond what they take idle, in sizes of the model.

The planes nccl and cuda_ipc are measured where there is a CUDA device (`--planes nccl,cuda_ipc`).
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification
from transformers.utils import logging

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recipes import tiny_models
from reward_loop.loop_thread import LoopThread
from reward_loop.serving.process_tree import below
from reward_loop.serving.server import VLLMServer
from reward_loop.serving.spec import ServerSpec
from reward_loop.sync.create import create_reward_publisher
from reward_loop.sync.publisher import RewardModelPublisher

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Published:
    """What one publish took; the memory in sizes of the model."""

    transfer_s: float
    publish_s: float
    pause_s: float
    memory: float


def served(path: Path, number: int, device: str) -> ServerSpec:
    """Return the spec of one server of the model at `path`."""
    return ServerSpec(
        str(path), "rm", "discriminative", replica=number, max_model_len=512, device="cuda" if device == "cuda" else "cpu"
    )


@contextmanager
def running(path: Path, count: int, device: str) -> Generator[list[VLLMServer]]:
    """Start servers, and end them."""
    loop = LoopThread("servers")
    servers = [VLLMServer(served(path, number, device)) for number in range(count)]

    async def start() -> None:
        async with asyncio.TaskGroup() as tasks:
            for server in servers:
                tasks.create_task(server.start())

    async def stop() -> None:
        for server in servers:
            await server.stop()

    try:
        loop.run(start())
        yield servers
    finally:
        loop.close(stop)


def processes(server: VLLMServer) -> list[int]:
    """Return the server's processes."""
    return [server.pid, *below(server.pid)]


def kilobytes(pids: Sequence[int], field: str) -> int:
    """Return the sum of a field of /proc/PID/status."""
    lines = (line for pid in pids for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def forget_peaks(pids: Sequence[int]) -> None:
    """Let VmHWM begin anew."""
    for pid in pids:
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def published(publisher: RewardModelPublisher, servers: Sequence[VLLMServer], tensors: Tensors) -> Published:
    """Publish once."""
    pids = [processes(server) for server in servers]
    idle = [kilobytes(each, "VmRSS") for each in pids]
    for each in pids:
        forget_peaks(each)
    began = time.perf_counter()
    report = publisher.publish(tensors)
    took_s = time.perf_counter() - began
    beyond = max(kilobytes(each, "VmHWM") - before for each, before in zip(pids, idle, strict=True))
    return Published(report.transfer_s, took_s, report.longest_pause_s, beyond * 1024 / size_of(tensors))


def size_of(tensors: Tensors) -> int:
    """Return the bytes of these tensors."""
    return sum(tensor.nbytes for tensor in tensors.values())


# The raw ways of the same bytes.

dist: Any = torch.distributed  # its stubs know little of process groups that are made by hand
_GROUPS: dict[Path, Any] = {}


def raw_gloo(tensors: list[torch.Tensor], rank: int, others: int, meet: Path) -> None:
    """Broadcast each tensor, from rank 0, into memory that is already there."""
    options = dist.ProcessGroupGloo._Options()
    options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
    group = _GROUPS.get(meet) or dist.ProcessGroupGloo(dist.FileStore(str(meet), others + 1), rank, others + 1, options)
    _GROUPS[meet] = group
    for tensor in tensors:
        group.broadcast([tensor], dist.BroadcastOptions()).wait()


def raw_nccl(tensors: list[torch.Tensor], rank: int, others: int, meet: Path) -> None:
    """Do as `raw_gloo`, each rank on a GPU of its own."""
    group = _GROUPS.get(meet) or dist.ProcessGroupNCCL(
        dist.FileStore(str(meet), others + 1), rank, others + 1, dist.ProcessGroupNCCL.Options()
    )
    _GROUPS[meet] = group
    for tensor in tensors:
        group.broadcast([tensor], dist.BroadcastOptions()).wait()
    torch.cuda.synchronize()


def raw_reader(
    plane: str, shapes: Sequence[tuple[tuple[int, ...], torch.dtype]], rank: int, others: int, meet: Path, pipe: Connection
) -> None:
    """Be one of the raw receivers: take everything each time that the pipe says so."""
    device = f"cuda:{rank}" if plane == "nccl" else "cpu"
    mine = [torch.ones(shape, dtype=dtype, device=device) for shape, dtype in shapes]
    pipe.send("ready")
    while pipe.recv() == "go":
        if plane == "gloo":
            raw_gloo(mine, rank, others, meet)
        elif plane == "nccl":
            raw_nccl(mine, rank, others, meet)
        elif plane == "directory":
            for ours, theirs in zip(mine, load_file(meet).values(), strict=True):
                ours.copy_(theirs)
        else:
            size = sum(tensor.nbytes for tensor in mine)
            shared: Any = torch.from_file(str(meet), shared=True, size=size, dtype=torch.uint8)
            for ours, piece in zip(mine, shared.split([tensor.nbytes for tensor in mine]), strict=True):
                ours.view(-1).view(torch.uint8).copy_(piece)
        pipe.send("done")


class Raw:
    """Carries tensors to `others` processes with nothing around it."""

    def __init__(self, plane: str, tensors: Tensors, others: int, directory: Path) -> None:
        self._plane, self._tensors, self._others = plane, dict(sorted(tensors.items())), others
        place = Path("/dev/shm") if plane == "shm" else directory
        self._meet = place / f"raw-{plane}-{others}-{time.monotonic_ns()}"
        shapes = [(tuple(tensor.shape), tensor.dtype) for tensor in self._tensors.values()]
        if plane == "shm":
            self._meet.touch()
            self._shared: Any = torch.from_file(str(self._meet), shared=True, size=size_of(tensors), dtype=torch.uint8).fill_(1)
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        for rank in range(1, others + 1):
            ours, theirs = context.Pipe()
            context.Process(target=raw_reader, args=(plane, shapes, rank, others, self._meet, theirs), daemon=True).start()
            self._pipes.append(ours)
        for pipe in self._pipes:
            pipe.recv()

    def seconds(self) -> float:
        """Carry them, and return how long it took until the last process had them."""
        began = time.perf_counter()
        if self._plane in ("gloo", "nccl"):
            self._tell("go")
            (raw_gloo if self._plane == "gloo" else raw_nccl)(list(self._tensors.values()), 0, self._others, self._meet)
        elif self._plane == "cuda_ipc":
            for tensor in self._tensors.values():
                tensor.to("cpu")
            return time.perf_counter() - began
        elif self._plane == "directory":
            save_file(dict(self._tensors), self._meet)
            self._tell("go")
        else:
            pieces = self._shared.split([tensor.nbytes for tensor in self._tensors.values()])
            for tensor, piece in zip(self._tensors.values(), pieces, strict=True):
                piece.copy_(tensor.view(-1).view(torch.uint8))
            self._tell("go")
        for pipe in self._pipes:
            pipe.recv()
        return time.perf_counter() - began

    def close(self) -> None:
        """End the processes."""
        self._tell("end")
        self._meet.unlink(missing_ok=True)

    def _tell(self, what: str) -> None:
        for pipe in self._pipes:
            pipe.send(what)


def measure(plane: str, servers: Sequence[VLLMServer], tensors: Tensors, rounds: int, directory: Path) -> bool:
    """Publish and carry raw in turns; print the ratios and return whether the targets are met."""
    publisher = create_reward_publisher([server.url for server in servers], plane=plane)
    raw = Raw(plane, tensors, len(servers), directory)
    published(publisher, servers, tensors)  # warm: the first one reads the checkpoint's table
    raw.seconds()
    took: list[Published] = []
    raw_s: list[float] = []
    for _ in range(rounds):
        took.append(published(publisher, servers, tensors))
        raw_s.append(raw.seconds())
    raw.close()
    name = f"{plane} to {len(servers)}"
    shown = {
        "publish": [one.publish_s for one in took],
        "transfer": [one.transfer_s for one in took],
        "pause": [one.pause_s for one in took],
        "raw": raw_s,
    }
    print(f"{name:16} " + ", ".join(f"{what} {statistics.median(seconds):.2f} s" for what, seconds in shown.items()))
    return all(
        [
            ratio(name, "transfer / raw", [one.transfer_s / other for one, other in zip(took, raw_s, strict=True)], 1.5),
            ratio(name, "pause / publish", [one.pause_s / one.publish_s for one in took], 0.5),
            ratio(name, "memory / model", [one.memory for one in took], 1.3),
        ]
    )


def ratio(name: str, what: str, values: Sequence[float], most: float) -> bool:
    """Print the median and its target; return whether it is met."""
    middle = statistics.median(values)
    print(f"{name:16} {what}: {middle:.2f} ({min(values):.2f} to {max(values):.2f}; target: at most {most})", flush=True)
    return middle <= most


def main() -> None:
    """Measure what the command line asks for."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--servers", default="1,2")
    options.add_argument("--planes", default="cuda_ipc,nccl" if device == "cuda" else "shm,gloo,directory")
    options.add_argument("--hidden", type=int, default=1152)
    options.add_argument("--layers", type=int, default=22)
    chosen = options.parse_args()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    met: list[bool] = []
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        path = tiny_models.reward_model(directory / "model", hidden=chosen.hidden, layers=chosen.layers)
        model: Any = AutoModelForSequenceClassification.from_pretrained(path, num_labels=1)
        tensors = {name: weight.detach().to(device) for name, weight in model.state_dict().items()}
        print(f"{len(tensors)} tensors, {size_of(tensors) / 1e6:.0f} MB, on {device}", flush=True)
        for count in map(int, chosen.servers.split(",")):
            with running(path, count, device) as servers:
                met += [measure(plane, servers, tensors, chosen.rounds, directory) for plane in chosen.planes.split(",")]
    sys.exit(not all(met))


if __name__ == "__main__":
    main()

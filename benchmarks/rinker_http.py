"""What HTTP costs a training: the same steps in this process and over HTTP, by turns, and the ratio of their times.

python benchmarks/rinker_http.py [--steps 40]

A step is what an RL loop does: weights to a sampler, 16 prompts with 16 answers each, one pass, one optimiser step. The server
has a process of its own. Both train copies of the same tiny model (76 thousand weights) by the same seeds, a step of each by
turns, and must get the same rewards at first. Target: over HTTP a step takes at most 1.25 times as long (median of pairs).
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import statistics
import sys
import tempfile
import time
from collections.abc import Generator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from reward_loop import rinker  # noqa: E402
from reward_loop.rinker.clients.in_process import local_service  # noqa: E402
from reward_loop.rinker.engine.settings import EngineSettings  # noqa: E402
from reward_loop.rinker.server.serve import run_server  # noqa: E402
from reward_loop.rinker.server.settings import ServerSettings  # noqa: E402
from tests.rinker.conformance.copy_digits import CopyDigits  # noqa: E402
from tests.rinker.conformance.tiny_policy import tiny_policy  # noqa: E402

TARGET = 1.25
WARM_UP = 3


def service(directory: Path) -> Any:
    """Return a service on the CPU, of one thread."""
    torch.set_num_threads(1)
    return local_service(directory, EngineSettings(device="cpu"))


def serve(directory: Path, said: Connection) -> None:
    """Be the server."""
    run_server(lambda: service(directory), ServerSettings(port=0), said.send)


@contextlib.contextmanager
def server(directory: Path) -> Generator[str]:
    """Run a server in a process of its own, and give its address."""
    heard, said = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(directory, said))
    process.start()
    try:
        yield heard.recv()
    finally:
        process.terminate()
        process.join()


def timed(model: Any, step: int) -> tuple[float, list[float]]:
    """Return the seconds that a step took, and its reward."""
    began = time.perf_counter()
    rewards = CopyDigits(batch=16, group=16, learning_rate=2e-3, seed=step).train(rinker, model, 1)
    return time.perf_counter() - began, rewards


def pairs(here: Any, there: Any, steps: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each step in this process and over HTTP."""
    alone: list[float] = []
    over_http: list[float] = []
    for step in range(WARM_UP + steps):
        first, second = (here, there) if step % 2 else (there, here)
        results = {id(model): timed(model, step) for model in (first, second)}
        (alone_s, expected), (http_s, rewards) = results[id(here)], results[id(there)]
        # Later they may part: sums are rounded by the size of the batch that a request came into, and Adam makes that larger.
        if step < WARM_UP and rewards != expected:
            raise SystemExit(f"step {step}: reward {expected} in this process, {rewards} over HTTP")
        alone.append(alone_s)
        over_http.append(http_s)
    return alone[WARM_UP:], over_http[WARM_UP:]


def main() -> int:
    """Print the figures; the exit code says whether the target was met."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--steps", type=int, default=40)
    steps: int = options.parse_args().steps
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        base_model = tiny_policy(directory / "policy")
        with (
            server(directory / "there") as url,
            rinker.ServiceClient(backend=service(directory / "here")) as here,
            rinker.ServiceClient(base_url=url) as there,
        ):
            models = [client.create_lora_training_client(base_model, rank=32, seed=0).result() for client in (here, there)]
            alone, over_http = pairs(models[0], models[1], steps)
    ratio = statistics.median(http_s / alone_s for alone_s, http_s in zip(alone, over_http, strict=True))
    milliseconds = [statistics.median(times) * 1000 for times in (alone, over_http)]
    print(f"{steps} steps: {milliseconds[0]:.1f} ms in this process, {milliseconds[1]:.1f} ms over HTTP (medians)")
    print(f"ratio {ratio:.3f} (median of pairs), target at most {TARGET}")
    return 0 if ratio <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())

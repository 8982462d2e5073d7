"""Short runs of the loop, and what they leave behind."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reward_loop.rinker.clients.service_client import ServiceClient
from reward_loop.rinker.loops.observer import CheckpointRecord, Observer, RunResult
from reward_loop.rinker.rl.train import train
from tests.rinker.rl.copy_task import CopyBuilder, CopyDataset, CopyEnv, MakeEnv, copy_config

STEPS, GROUPS, SIZE = 4, 4, 2


class Watching(Observer):
    """Keeps what it is told; ends the run after step `crash`, as a killed process would."""

    def __init__(self, crash: int | None = None) -> None:
        self.crash = crash
        self.events: list[str] = []
        self.metrics: list[Mapping[str, float]] = []

    def on_start(self, kind: str, first_step: int, steps: int) -> None:
        self.events.append(f"{kind} {first_step}/{steps}")

    def on_step(self, step: int, metrics: Mapping[str, float]) -> None:
        self.events.append(f"step {step}")
        self.metrics.append(metrics)
        if step == self.crash:
            raise KeyboardInterrupt

    def on_checkpoint(self, checkpoint: CheckpointRecord) -> None:
        self.events.append(f"checkpoint {checkpoint.name}")

    def on_end(self, result: RunResult) -> None:
        self.events.append(f"end {result.steps}")

    def series(self, name: str) -> list[float]:
        return [metrics[name] for metrics in self.metrics]


async def run(
    log_path: Path,
    base_model: str,
    *,
    watching: Watching | None = None,
    make: MakeEnv = CopyEnv,
    test: CopyDataset | None = None,
    service: ServiceClient | None = None,
    steps: int = STEPS,
    groups: int = GROUPS,
    scorer: Any = None,
    **settings: Any,
) -> Watching:
    """Train a few steps on small batches, and return what was observed."""
    watching = watching or Watching()
    config = copy_config(log_path, base_model, **{"batch_size": GROUPS, "group_size": SIZE, **settings})
    data = CopyBuilder(CopyDataset(steps, groups, SIZE, make), test)
    own = service or ServiceClient(checkpoint_dir=log_path / "weights")
    try:
        await train(config, own, data=data, scorer=scorer, observer=watching)
    finally:
        if service is None:
            own.close().result()
    return watching


def lines(log_path: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (log_path / name).read_text().splitlines()]


def trained_groups(log_path: Path) -> Counter[tuple[int, int]]:
    """How often each group was trained on, by what the run wrote."""
    return Counter((group[0], group[1]) for line in lines(log_path, "groups.jsonl") for group in line["groups"])


def every_group_once(steps: int = STEPS) -> Counter[tuple[int, int]]:
    return Counter((batch, place) for batch in range(steps) for place in range(GROUPS))

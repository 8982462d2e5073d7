"""The loop of training on data that is there: conversations, or preferences.

Invariants: the data of a step depend on the seed and the step's number alone, so that a resumed run sees what the first would
have seen; each row comes once an epoch, for which the very last batch may be short. (A run that is over and is given more epochs
goes on behind a whole batch: what its short one lacked is left out.)
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from reward_loop.errors import ConfigError
from reward_loop.rinker.clients.training_client import TrainingClient
from reward_loop.rinker.learner import LossConfig
from reward_loop.rinker.loops.config import LoopConfig
from reward_loop.rinker.loops.observer import RunResult
from reward_loop.rinker.loops.run_log import RunLog
from reward_loop.rinker.loops.saving import save_checkpoint
from reward_loop.rinker.types import Datum, ForwardBackwardOutput
from reward_loop.training.batches import BatchOrder


class Task(Protocol):
    """What is trained to what."""

    @property
    def data(self) -> Sequence[Datum]:
        """All rows."""
        ...

    @property
    def loss(self) -> tuple[str, LossConfig | None]:
        """Its name and settings."""
        ...

    @property
    def samples(self) -> bool:
        """Whether the model can be sampled from."""
        ...

    def batch(self, rows: Sequence[int]) -> list[Datum]:
        """Return the data of one step."""
        ...

    def measured(self, data: Sequence[Datum], output: ForwardBackwardOutput) -> Mapping[str, float]:
        """Return what one pass says."""
        ...

    async def evaluated(self, client: TrainingClient) -> Mapping[str, float]:
        """Return what held-out data say."""
        ...


async def run_supervised(config: LoopConfig, batch_size: int, client: TrainingClient, log: RunLog, task: Task) -> RunResult:
    """Make every step that is left."""
    rows = len(task.data)
    places = config.epochs * rows
    steps = math.ceil(places / batch_size)
    steps = steps if config.max_steps is None else min(steps, config.max_steps)
    if log.first_step > steps:
        raise ConfigError(
            f"{config.log_path} has made {log.first_step} steps already, and there are {steps} now; raise max_steps"
        )
    order = BatchOrder(rows, batch_size, config.seed)
    metrics: dict[str, float] = {}
    log.start(steps)
    for step in range(log.first_step, steps):
        some = order.rows(step)[: places - step * batch_size]  # BatchOrder fills the last one up with rows of another epoch
        metrics = await _step(config, client, task, some, step, steps)
        if config.due(config.eval_every, step + 1, steps):
            metrics |= await task.evaluated(client)
        # The checkpoint is behind the step's line: whoever finds it finds all steps before it.
        log.step(step, metrics)
        if config.due(config.save_every, step + 1, steps):
            await save_checkpoint(client, log, step + 1, sampler=task.samples)
    result = RunResult(steps, metrics, log.checkpoint)
    log.observer.on_end(result)
    return result


async def _step(
    config: LoopConfig, client: TrainingClient, task: Task, rows: Sequence[int], step: int, steps: int
) -> dict[str, float]:
    began = time.monotonic()
    adam = config.adam.params(step, steps)
    data = task.batch(rows)
    loss, settings = task.loss
    passed = client.forward_backward(data, loss, settings)
    stepped = client.optim_step(adam)  # asked for before the pass is awaited: it runs behind it
    output = await passed
    optimizer = (await stepped).metrics or {}
    seconds = time.monotonic() - began
    tokens = sum(datum.model_input.length for datum in data)
    return {
        **{f"optim/{name.partition(':')[0]}": value for name, value in optimizer.items()},
        **task.measured(data, output),
        "optim/lr": adam.learning_rate,
        "num_sequences": float(len(data)),
        "num_tokens": float(tokens),
        "progress/batch": float(step),
        "progress/done_frac": (step + 1) / steps,
        "time/total": seconds,
        "throughput/trained_tokens_per_s": tokens / seconds,
    }

"""The loop over data that is there: which rows each step sees, and in how many steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from reward_loop.rinker.clients.service_client import ServiceClient
from reward_loop.rinker.clients.training_client import TrainingClient
from reward_loop.rinker.learner import LossConfig
from reward_loop.rinker.loops.config import LoopConfig
from reward_loop.rinker.loops.run_log import RunLog
from reward_loop.rinker.loops.supervised import run_supervised
from reward_loop.rinker.types import AdamParams, Datum, ForwardBackwardOutput, ModelInput, OptimStepResponse
from tests.rinker.recording_backend import RecordingBackend


class Steady(RecordingBackend):
    async def optim_step(self, model_id: str, seq_id: int, params: AdamParams) -> OptimStepResponse:
        return OptimStepResponse({})


class Rows:
    """A task that notes the rows of each step."""

    samples = False
    loss: tuple[str, LossConfig | None] = ("cross_entropy", None)

    def __init__(self, rows: int) -> None:
        self.data: Sequence[Datum] = [Datum(ModelInput.from_ints([row]), {}) for row in range(rows)]
        self.seen: list[list[int]] = []

    def batch(self, rows: Sequence[int]) -> list[Datum]:
        self.seen.append(list(rows))
        return [self.data[row] for row in rows]

    def measured(self, data: Sequence[Datum], output: ForwardBackwardOutput) -> Mapping[str, float]:
        return {}

    async def evaluated(self, client: TrainingClient) -> Mapping[str, float]:
        return {}


async def seen(path: Path, rows: int, batch_size: int, **settings: Any) -> list[list[int]]:
    task = Rows(rows)
    config = LoopConfig.model_validate({"log_path": path, "model": {"base_model": "base"}, **settings})
    with ServiceClient(backend=Steady()) as service:
        client = await service.create_training_client("base")
        result = await run_supervised(config, batch_size, client, RunLog("sl", config), task)
    assert result.steps == len(task.seen)
    return task.seen


@pytest.mark.parametrize(
    ("rows", "batch_size", "epochs", "sizes"),
    [
        (95, 64, 1, [64, 31]),
        (100, 64, 1, [64, 36]),
        (128, 64, 1, [64, 64]),
        (3, 64, 1, [3]),
        (10, 4, 3, [4, 4, 4, 4, 4, 4, 4, 2]),
    ],
)
async def test_each_row_comes_once_an_epoch_and_the_last_batch_may_be_short(
    tmp_path: Path, rows: int, batch_size: int, epochs: int, sizes: list[int]
) -> None:
    steps = await seen(tmp_path, rows, batch_size, epochs=epochs)
    assert [len(step) for step in steps] == sizes
    assert Counter(row for step in steps for row in step) == dict.fromkeys(range(rows), epochs)


async def test_a_run_that_is_cut_has_the_first_steps_of_the_whole_one(tmp_path: Path) -> None:
    whole = await seen(tmp_path / "whole", 10, 4)
    assert await seen(tmp_path / "cut", 10, 4, max_steps=2) == whole[:2]

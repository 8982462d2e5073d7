"""What each rank does in the tests of ranks, in a process of its own; also what one process does alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.engine.engine import Engine
from reward_loop.rinker.engine.ranks import Ranks
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.runtime.rank_group import GroupRanks, Meeting, join
from reward_loop.rinker.runtime.settings import Strategy
from reward_loop.rinker.runtime.sharded_ranks import ShardedRanks
from reward_loop.rinker.types import AdamParams, LoraConfig, ModelSpec
from tests.rinker.engine.models import datum, pairs, sampled, supervised

ADAM = AdamParams(learning_rate=1e-2, grad_clip_norm=1.0)
RANKS = 2


@dataclass(frozen=True, slots=True)
class Scenario:
    """A model, and in how many numbers its micro-batches are held."""

    name: str
    spec: ModelSpec
    settings: EngineSettings


def scenarios(language_model: str, reward_model: str) -> list[Scenario]:
    small = EngineSettings(micro_batch_tokens=24)
    return [
        Scenario("full", ModelSpec(language_model), small),
        Scenario("lora", ModelSpec(language_model, lora=LoraConfig(rank=4, seed=1)), small),
        Scenario("bfloat16", ModelSpec(language_model), small.model_copy(update={"weights": "bfloat16"})),
        Scenario("reward", ModelSpec(reward_model, kind="seq_cls"), small),
    ]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run of a scenario gives: outputs in the order of the data, metrics, and the weights at the end."""

    outputs: Sequence[Sequence[float]]
    metrics: Sequence[Mapping[str, float]]
    weights: Mapping[str, torch.Tensor]
    restored: Mapping[str, torch.Tensor]
    refused: str


def run(scenario: Scenario, ranks: Ranks, directory: Path) -> Outcome:
    """Train, refuse what is wrong, save, train on, and go back to what was saved."""
    engine = Engine(scenario.spec, scenario.settings, ranks)
    pair = scenario.spec.kind == "seq_cls"
    loss = "bradley_terry" if pair else "importance_sampling"
    outputs: list[Sequence[float]] = []
    metrics: list[Mapping[str, float]] = []
    for step, count in enumerate((7, 1, 4)):  # one datum: a rank has none
        data = pairs(count, seed=step) if pair else sampled(count, seed=step)
        passed = engine.forward_backward(data, loss)
        key = "scores" if pair else "logprobs"
        outputs += [output[key].data for output in passed.loss_fn_outputs]
        stepped = engine.optim_step(ADAM)
        metrics += [passed.metrics, stepped.metrics or {}]
    refused = _refusal(engine, loss, pair)
    engine.save(directory, optimizer=True)
    weights = engine.weights()
    engine.forward_backward(pairs(3) if pair else supervised(3), "bradley_terry" if pair else "cross_entropy")
    engine.optim_step(ADAM)
    engine.load(directory, optimizer=True)
    return Outcome(outputs, metrics, weights, engine.weights(), refused)


def _refusal(engine: Engine, loss: str, pair: bool) -> str:
    bad = pairs(1, margin=[float("nan")]) if pair else [datum([1, 2, 99], logprobs=[0.0, 0.0], advantages=[1.0, 1.0])]
    try:
        engine.forward_backward([*(pairs(2) if pair else sampled(2)), *bad], loss)
    except RequestFailedError as error:
        return error.message
    return "nothing was refused"


def run_rank(
    rank: int, meeting: Meeting, found: Sequence[Scenario], strategies: Sequence[Strategy], directory: Path
) -> dict[str, Outcome]:
    """Run every scenario by every strategy as one of the ranks."""
    torch.set_num_threads(1)
    join(meeting, rank, RANKS, timeout_s=120.0)
    made: dict[Strategy, Any] = {"ddp": GroupRanks, "fsdp2": ShardedRanks}
    return {
        f"{strategy} {scenario.name}": run(scenario, made[strategy](), directory / f"{strategy}-{scenario.name}")
        for strategy in strategies
        for scenario in found
    }

"""Evaluation of what a run has saved."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from reward_loop.errors import ConfigError
from reward_loop.rinker.clients.service_client import ServiceClient
from reward_loop.rinker.evaluation.evaluator import RLTestSetEvaluator
from reward_loop.rinker.loops.journal import Journal
from reward_loop.rinker.loops.observer import CheckpointRecord
from reward_loop.rinker.loops.run_log import read_checkpoints
from reward_loop.rinker.loops.service import open_service
from reward_loop.rinker.rl.admission import Admission
from reward_loop.rinker.rl.config import RLConfig
from reward_loop.rinker.rl.data import dataset_builder, open_scorer
from reward_loop.rinker.rl.rollouts import GroupPlayer
from reward_loop.rinker.rl.stage_clock import StageClock
from reward_loop.rinker.rl.types import RLDatasetBuilder

EVALUATIONS = "evaluations.jsonl"


@dataclass(frozen=True, slots=True)
class CheckpointEvaluation:
    """How good the weights of one checkpoint are."""

    checkpoint: CheckpointRecord
    metrics: dict[str, float]


def evaluate_rl(
    config: RLConfig,
    *,
    names: Sequence[str] = (),
    service: ServiceClient | None = None,
    data: RLDatasetBuilder | None = None,
) -> list[CheckpointEvaluation]:
    """Evaluate checkpoints of the run in `config.log_path` (all, or those of these names) and append them to evaluations.jsonl.

    For a thread without an event loop. Raises ConfigError where there is nothing to evaluate, or nothing to evaluate on.
    """
    if service is not None:
        return asyncio.run(evaluate(config, service, names=names, data=data))
    with open_service(config) as own:
        return asyncio.run(evaluate(config, own, names=names, data=data))


async def evaluate(
    config: RLConfig, service: ServiceClient, *, names: Sequence[str] = (), data: RLDatasetBuilder | None = None
) -> list[CheckpointEvaluation]:
    """`evaluate_rl` for a running event loop."""
    checkpoints = _chosen(config, names)
    first = await service.create_sampling_client(model_path=checkpoints[0].sampler_path)
    async with open_scorer(config, first) as scorer:
        _, test = await (data or dataset_builder(config, first))()
        if test is None:
            raise ConfigError(
                "there is nothing to evaluate on; set data.test_problems, or let the builder return a second dataset"
            )
        player = GroupPlayer(scorer, config.failures, Admission(config.max_rollouts_in_flight), StageClock())
        evaluator = RLTestSetEvaluator(test, player, config)
        journal = Journal(config.log_path / EVALUATIONS)
        found: list[CheckpointEvaluation] = []
        for checkpoint in checkpoints:
            client = await service.create_sampling_client(model_path=checkpoint.sampler_path)
            metrics = await evaluator(client)
            journal.append({"name": checkpoint.name, "batch": checkpoint.batch, **metrics})
            found.append(CheckpointEvaluation(checkpoint, metrics))
    return found


def _chosen(config: RLConfig, names: Sequence[str]) -> list[CheckpointRecord]:
    known = {one.name: one for one in read_checkpoints(config.log_path) if one.sampler_path is not None}
    if not known:
        raise ConfigError(f"{config.log_path} holds no checkpoints that can be sampled from; train first")
    if unknown := [name for name in names if name not in known]:
        raise ConfigError(f"{config.log_path} has no checkpoint {', '.join(unknown)}; it has {', '.join(known)}")
    return [known[name] for name in names] if names else list(known.values())

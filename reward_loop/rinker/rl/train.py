"""The loop of reinforcement learning.

Invariants: a step trains as many groups as its batch has, each exactly once; steps only ascend; what is trained on is at most
`max_steps_off_policy` steps old; a run that was killed goes on from its last checkpoint to the same number of steps.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from reward_loop.errors import ConfigError
from reward_loop.rinker.clients.sampling_client import SamplingClient
from reward_loop.rinker.clients.service_client import ServiceClient
from reward_loop.rinker.clients.training_client import TrainingClient
from reward_loop.rinker.evaluation.evaluator import Evaluator, RLTestSetEvaluator
from reward_loop.rinker.loops.observer import CheckpointRecord, Observer, RunResult
from reward_loop.rinker.loops.run_log import RunLog
from reward_loop.rinker.loops.saving import save_checkpoint
from reward_loop.rinker.loops.service import run_to_the_end, training_client
from reward_loop.rinker.rl.admission import Admission
from reward_loop.rinker.rl.config import RLConfig
from reward_loop.rinker.rl.data import dataset_builder, open_scorer
from reward_loop.rinker.rl.kl import differences, kl_v1, kl_v2
from reward_loop.rinker.rl.learner import PolicyLearner
from reward_loop.rinker.rl.logprobs import logprobs_of
from reward_loop.rinker.rl.metrics import group_metrics
from reward_loop.rinker.rl.pipeline import RolloutPipeline
from reward_loop.rinker.rl.policies import Policies
from reward_loop.rinker.rl.policy import Policy, SamplingSettings
from reward_loop.rinker.rl.rewards import EpisodeScorer
from reward_loop.rinker.rl.rollouts import GroupPlayer, PlayedGroup
from reward_loop.rinker.rl.stage_clock import StageClock
from reward_loop.rinker.rl.training_batch import part_sizes, training_batch
from reward_loop.rinker.rl.types import RLDatasetBuilder, TrajectoryGroup
from reward_loop.rinker.rl.work_plan import WorkPlan

logger = logging.getLogger(__name__)


def train_rl(
    config: RLConfig,
    *,
    service: ServiceClient | None = None,
    data: RLDatasetBuilder | None = None,
    scorer: EpisodeScorer | None = None,
    evaluators: Sequence[Evaluator] = (),
    observer: Observer | None = None,
) -> RunResult:
    """Run (or go on with) the training in `config.log_path`, from a thread without an event loop.

    `service`, `data` and `scorer` take the place of what the configuration names; a service of the caller's is not closed.
    """

    def run(of: ServiceClient) -> Coroutine[Any, Any, RunResult]:
        return train(config, of, data=data, scorer=scorer, evaluators=evaluators, observer=observer)

    return run_to_the_end(config, run) if service is None else asyncio.run(run(service))


async def train(
    config: RLConfig,
    service: ServiceClient,
    *,
    data: RLDatasetBuilder | None = None,
    scorer: EpisodeScorer | None = None,
    evaluators: Sequence[Evaluator] = (),
    observer: Observer | None = None,
) -> RunResult:
    """`train_rl` for a running event loop."""
    async with AsyncExitStack() as stack:
        log = RunLog("rl", config, observer)
        stack.callback(log.close)
        client = await stack.enter_async_context(training_client(service, config, "causal_lm", log.checkpoint))
        judge = await stack.enter_async_context(open_scorer(config, client)) if scorer is None else scorer
        dataset, test = await (data or dataset_builder(config, client))()
        steps = len(dataset) * config.epochs
        steps = steps if config.max_steps is None else min(steps, config.max_steps)
        if log.first_step > steps:
            raise ConfigError(f"{config.log_path} has made {log.first_step} steps already, and max_steps={steps}; raise it")
        checkpoint = log.checkpoint
        plan = WorkPlan(
            dataset,
            steps,
            max_steps_off_policy=config.max_steps_off_policy,
            first_step=log.first_step,
            untrained=() if checkpoint is None else checkpoint.untrained,
            trained_ahead=() if checkpoint is None else checkpoint.trained_ahead,
        )
        reference = await _reference(service, config) if config.kl.any else None
        clock = StageClock()
        player = GroupPlayer(judge, config.failures, Admission(config.max_rollouts_in_flight), clock)
        own = [] if test is None else [RLTestSetEvaluator(test, player, config)]
        policies = await stack.enter_async_context(Policies(client, SamplingSettings.of(config, config.temperature)))
        run = _Run(config, log, client, policies, plan, player, clock, [*own, *evaluators], reference, steps)
        log.start(steps)
        result = await run.finish()
        log.observer.on_end(result)
        return result


async def _reference(service: ServiceClient, config: RLConfig) -> SamplingClient:
    if config.kl.reference is not None:
        return await service.create_sampling_client(model_path=config.kl.reference)
    return await service.create_sampling_client(base_model=config.model.base_model)


@dataclass(slots=True)
class _Run:
    config: RLConfig
    log: RunLog
    client: TrainingClient
    policies: Policies
    plan: WorkPlan
    player: GroupPlayer
    clock: StageClock
    evaluators: Sequence[Evaluator]
    reference: SamplingClient | None
    steps: int

    async def finish(self) -> RunResult:
        """Make every step that is left."""
        first = self.log.first_step
        metrics: dict[str, float] = {}
        if first == self.steps:
            return RunResult(self.steps, metrics, self.log.checkpoint)
        policy = await self.policies.take(first)
        pipeline = RolloutPipeline(self.plan, self.player, policy, max_steps_off_policy=self.config.max_steps_off_policy)
        async with pipeline.running():
            for step in range(first, self.steps):
                metrics = await self._step(step, pipeline)
        return RunResult(self.steps, metrics, self.log.checkpoint)

    async def _step(self, step: int, pipeline: RolloutPipeline) -> dict[str, float]:
        """Train one batch, publish the weights, and do what is due; return the metrics."""
        began = time.monotonic()
        adam = self.config.adam.params(step, self.steps)
        learner = PolicyLearner(self.client, self.config)
        played, measured = await self._learn(step, pipeline, learner)
        with self.clock.at("train_step"):
            policy = await self.policies.take(step + 1)
        pipeline.publish(policy)
        await self.policies.keep_only(pipeline.steps_in_use)
        metrics = {**group_metrics(played, step), **learner.metrics(adam), **measured, **self.clock.lap()}
        if self.config.post_kl:
            metrics |= await self._post_kl(learner, policy)
        seconds = time.monotonic() - began
        metrics |= self._progress(step, pipeline, learner, seconds, metrics)
        done = step + 1
        if self.config.due(self.config.eval_every, done, self.steps):
            metrics |= await self._evaluate(policy)
        # The checkpoint is behind the step's line: whoever finds it finds all steps before it.
        self.log.step(step, metrics, [[*one.task.id, one.policy_step, one.attempts] for one in played])
        if self.config.due(self.config.save_every, done, self.steps):
            await self._save(done)
        return metrics

    async def _learn(
        self, step: int, pipeline: RolloutPipeline, learner: PolicyLearner
    ) -> tuple[list[PlayedGroup], dict[str, float]]:
        """Train the groups of a step: as they come in a stream, else once all are there, in their order."""
        if self.config.stream is not None:
            return await self._learn_stream(step, pipeline, learner)
        played = sorted([await self._next(pipeline) for _ in range(self.plan.size(step))], key=lambda one: one.task.id)
        batch = await training_batch(_whole(played), self.config, self.reference, parts=self.config.num_substeps)
        with self.clock.at("train_step"):
            for sequences in batch.parts:
                await learner.learn(sequences, self.config.adam.params(step, self.steps))
        return played, batch.metrics

    async def _learn_stream(
        self, step: int, pipeline: RolloutPipeline, learner: PolicyLearner
    ) -> tuple[list[PlayedGroup], dict[str, float]]:
        adam = self.config.adam.params(step, self.steps)
        played: list[PlayedGroup] = []
        measured: list[dict[str, float]] = []
        sizes = part_sizes(self.plan.size(step), self.config.parts)
        for number, size in enumerate(sizes, 1):
            part = [await self._next(pipeline) for _ in range(size)]
            batch = await training_batch(_whole(part), self.config, self.reference)
            with self.clock.at("train_step"):
                ends = _ends_substep(number, len(sizes), self.config.num_substeps)
                await learner.learn(batch.sequences, adam if ends else None)
            played += part
            measured.append(batch.metrics)
        return played, {name: sum(one[name] for one in measured) / len(measured) for name in measured[0]}

    async def _next(self, pipeline: RolloutPipeline) -> PlayedGroup:
        played = await pipeline.next_group()
        self.plan.trained(played.task.id)
        return played

    async def _evaluate(self, policy: Policy) -> dict[str, float]:
        began = time.monotonic()
        metrics: dict[str, float] = {}
        for evaluator in self.evaluators:
            metrics |= await evaluator(policy.client)
        return {**metrics, "time/evaluation": time.monotonic() - began} if self.evaluators else {}

    async def _save(self, done: int) -> CheckpointRecord:
        return await save_checkpoint(
            self.client,
            self.log,
            done,
            sampler=True,
            untrained=self.plan.untrained(done),
            trained_ahead=self.plan.trained_ahead(done),
        )

    async def _post_kl(self, learner: PolicyLearner, policy: Policy) -> dict[str, float]:
        d = differences(learner.sequences, await logprobs_of(learner.sequences, policy.client, self.config.failures))
        return {"kl_pre_post_v1": kl_v1(d), "kl_pre_post_v2": kl_v2(d)}

    def _progress(
        self, step: int, pipeline: RolloutPipeline, learner: PolicyLearner, seconds: float, metrics: dict[str, float]
    ) -> dict[str, float]:
        discarded, pipeline.discarded = pipeline.discarded, 0
        sampled = metrics.get("env/all/total_ac_tokens", 0.0)
        return {
            "progress/batch": float(step),
            "progress/done_frac": (step + 1) / self.steps,
            "async/discarded_groups": float(discarded),
            "time/total": seconds,
            "throughput/trained_tokens_per_s": learner.tokens / seconds,
            "throughput/sampled_tokens_per_s": sampled / seconds,
        }


def _whole(played: Sequence[PlayedGroup]) -> list[TrajectoryGroup]:
    """Return the groups that did not fail."""
    return [one.group for one in played if one.group is not None]


def _ends_substep(number: int, parts: int, substeps: int) -> bool:
    """Whether part `number` (from 1) of so many is the last of its substep; fewer parts than substeps end one each."""
    return number * substeps // parts > (number - 1) * substeps // parts

"""Evaluation: greedy, of a policy in training and of what a run has saved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from reward_loop.errors import ConfigError, DataError
from reward_loop.rinker.clients.service_client import ServiceClient
from reward_loop.rinker.evaluation.evaluator import RLTestSetEvaluator
from reward_loop.rinker.evaluation.offline import evaluate, evaluate_rl
from reward_loop.rinker.loops.journal import Journal
from reward_loop.rinker.rendering import TokensWithLogprobs
from reward_loop.rinker.rl.admission import Admission
from reward_loop.rinker.rl.config import FailureConfig
from reward_loop.rinker.rl.rewards import NoScorer
from reward_loop.rinker.rl.rollouts import GroupPlayer
from reward_loop.rinker.rl.stage_clock import StageClock
from reward_loop.rinker.rl.types import Action, EnvGroupBuilder, RLDataset, StepResult
from reward_loop.rinker.types import SamplingParams
from tests.rinker.rl.copy_task import CopyBuilder, CopyDataset, CopyEnv, CopyGroup, copy_config, write_model
from tests.rinker.rl.runs import GROUPS, SIZE, Watching, run
from tests.rinker.rl.scripted import ScriptedClient


class Fixed(RLDataset):
    """One batch of groups with these digits."""

    def __init__(self, *digits: list[int], size: int = 1, make: Any = CopyEnv) -> None:
        self.groups = [CopyGroup(one, size, make) for one in digits]

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        return self.groups

    def __len__(self) -> int:
        return 1


def evaluator(data: RLDataset, **settings: Any) -> RLTestSetEvaluator:
    player = GroupPlayer(NoScorer(), FailureConfig(), Admission(64), StageClock())
    return RLTestSetEvaluator(data, player, copy_config(Path("unused"), "unused", **settings))


async def ones(prompt: list[int], params: SamplingParams) -> list[int]:
    return [1, 1, 1]


async def test_the_share_that_passed_and_the_mean_reward() -> None:
    client = ScriptedClient(ones)
    metrics = await evaluator(Fixed([1, 1, 1], [1, 2, 3]))(client)
    assert (metrics["test/pass_rate"], metrics["test/pass_at_k"]) == (0.5, 0.5)
    assert metrics["test/reward/total"] == pytest.approx(2 / 3)
    assert metrics["test/env/copy/correct"] == 0.5
    assert {params.temperature for _, params in client.calls} == {0.0}


async def test_completions_can_be_sampled_and_a_group_passes_with_one_of_them() -> None:
    right = [True, False]

    async def either(prompt: list[int], params: SamplingParams) -> list[int]:
        return prompt[1:-1] if right.pop() else [0]

    client = ScriptedClient(either)
    metrics = await evaluator(Fixed([1, 2, 3], size=2), evaluation={"temperature": 0.5})(client)
    assert {params.temperature for _, params in client.calls} == {0.5}
    assert (metrics["test/pass_rate"], metrics["test/pass_at_k"]) == (0.5, 1.0)


async def test_without_a_metric_correct_the_reward_decides() -> None:
    class Plain(CopyEnv):
        async def step(self, action: Action, *, extra: TokensWithLogprobs | None = None) -> StepResult:
            result = await super().step(action, extra=extra)
            return StepResult(result.reward if self.digits[0] else None, True, result.next_observation, [])

    data = Fixed([1, 1, 2], [1, 2, 3], [0, 1, 1], make=Plain)
    metrics = await evaluator(data, evaluation={"pass_reward": 0.6})(ScriptedClient(ones))
    assert metrics["test/pass_rate"] == pytest.approx(1 / 3)  # 2/3 passes, 1/3 does not, and neither does what has no reward
    assert metrics["test/env/all/unscored"] == 1.0


@pytest.mark.parametrize("empty", [Fixed(), CopyDataset(0, 1, 1)], ids=["no groups", "no batches"])
def test_a_dataset_without_groups_is_refused(empty: RLDataset) -> None:
    with pytest.raises(DataError, match="the dataset of the evaluation 'test' has no groups; give it some, or leave it out"):
        evaluator(empty)


async def test_saved_checkpoints_are_what_they_were_in_training(tmp_path: Path, evaluated_model: str) -> None:
    test = CopyDataset(1, 3, 1, seed=9)
    service = ServiceClient(checkpoint_dir=tmp_path / "weights")
    try:
        settings: dict[str, Any] = {"save_every": 1, "eval_every": 1, "adam": {"learning_rate": 1e-2}}
        watching = await run(tmp_path, evaluated_model, steps=2, test=test, service=service, **settings)
        config = copy_config(tmp_path, evaluated_model, batch_size=GROUPS, group_size=SIZE, **settings)
        data = CopyBuilder(CopyDataset(1, 1, 1), test)
        found = await evaluate(config, service, data=data)
        assert [one.checkpoint.batch for one in found] == [1, 2]
        assert [one.metrics["test/reward/total"] for one in found] == pytest.approx(watching.series("test/reward/total"))
        [last] = await evaluate(config, service, data=data, names=["000002"])
        assert last.metrics == found[-1].metrics
        assert [line["name"] for line in Journal(tmp_path / "evaluations.jsonl").read()] == ["000001", "000002", "000002"]
        with pytest.raises(ConfigError, match="has no checkpoint 000009; it has 000001, 000002"):
            await evaluate(config, service, data=data, names=["000009"])
        with pytest.raises(ConfigError, match="nothing to evaluate on"):
            await evaluate(config, service, data=CopyBuilder(CopyDataset(1, 1, 1)))
    finally:
        service.close().result()


def test_a_directory_without_checkpoints_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no checkpoints"):
        evaluate_rl(copy_config(tmp_path, "m"), data=CopyBuilder(CopyDataset(1, 1, 1)))


async def test_an_evaluation_in_training_is_of_the_new_weights_and_costs_no_steps(tmp_path: Path, evaluated_model: str) -> None:
    watching: Watching = await run(tmp_path, evaluated_model, steps=2, test=CopyDataset(1, 2, 1), eval_every=2)
    assert ["time/evaluation" in metrics for metrics in watching.metrics] == [False, True]


@pytest.fixture(scope="module")
def evaluated_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_model(tmp_path_factory.mktemp("evaluated"))

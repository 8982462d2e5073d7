"""The loop: whatever its mode and whatever fails, every group is trained once, in as many steps as there are batches."""

from __future__ import annotations

import asyncio
import math
import statistics
from pathlib import Path
from typing import Any

import pytest

from reward_loop.errors import ConfigError, TrainingError
from reward_loop.rinker.clients.service_client import ServiceClient
from reward_loop.rinker.rendering import TokensWithLogprobs
from reward_loop.rinker.rl.rollouts import EnvironmentFailed
from reward_loop.rinker.rl.types import Action, StepResult
from reward_loop.rinker.types import ModelInput
from tests.rinker.rl.copy_task import CopyDataset, CopyEnv, copy_config
from tests.rinker.rl.runs import GROUPS, SIZE, STEPS, Watching, every_group_once, lines, run, trained_groups
from tests.rinker.rl.without_models import PlayingBackend


async def test_a_run_makes_every_step_and_says_what_it_did(tmp_path: Path, copy_model: str) -> None:
    watching = await run(tmp_path, copy_model, save_every=2, test=CopyDataset(1, 3, 1, seed=9), eval_every=2)
    steps = ["step 0", "step 1", "checkpoint 000002", "step 2", "step 3", "checkpoint 000004"]
    assert watching.events == ["rl 0/4", *steps, "end 4"]
    assert [line["step"] for line in lines(tmp_path, "metrics.jsonl")] == [0, 1, 2, 3]
    assert trained_groups(tmp_path) == every_group_once()
    first, second = watching.metrics[0], watching.metrics[1]
    assert {
        "reward/total",
        "env/all/reward/total",
        "env/copy/reward/total",
        "env/all/by_group/frac_mixed",
        "env/all/by_group/frac_all_good",
        "env/all/by_group/frac_all_bad",
        "optim/kl_sample_train_v1",
        "optim/kl_sample_train_v2",
        "optim/entropy",
        "optim/lr",
        "progress/batch",
        "progress/done_frac",
        "time/sampling",
        "time/scoring",
        "time/train_step",
        "time/total",
        "sampling_client/step_min",
        "sampling_client/step_max",
        "sampling_client/step_mean",
        "throughput/sampled_tokens_per_s",
    } <= first.keys()
    assert first["env/all/total_episodes"] == GROUPS * SIZE
    assert first["optim/kl_sample_train_v2"] < 1e-9  # sampler and learner agree on the policy that sampled
    assert ("test/pass_rate" in first, "test/pass_rate" in second) == (False, True)


async def test_the_same_seed_gives_the_same_run_and_another_one_another(tmp_path: Path, copy_model: str) -> None:
    runs = [await run(tmp_path / str(n), copy_model, steps=2, seed=seed) for n, seed in enumerate([0, 0, 1])]
    for name in ("reward/total", "optim/loss", "optim/entropy"):
        # Which episodes the sampler draws together is not the same every time, and the last bits of float32 depend on it.
        assert runs[1].series(name) == pytest.approx(runs[0].series(name), abs=1e-5)
    assert runs[2].series("optim/entropy") != pytest.approx(runs[0].series("optim/entropy"), abs=1e-5)


@pytest.mark.parametrize(
    ("settings", "updates"),
    [
        ({}, STEPS),
        ({"num_substeps": 2}, 2 * STEPS),
        ({"stream": {"num_minibatches": 4}}, STEPS),
        ({"stream": {"num_minibatches": 2}, "num_substeps": 2, "max_rollouts_in_flight": 2}, 2 * STEPS),
        ({"max_steps_off_policy": 2}, STEPS),
        ({"max_steps_off_policy": 1, "stream": {"num_minibatches": 4}, "max_rollouts_in_flight": 4}, STEPS),
    ],
    ids=["plain", "substeps", "stream", "stream substeps", "off policy", "stream off policy"],
)
async def test_in_every_mode_each_group_is_trained_once(
    tmp_path: Path, copy_model: str, settings: dict[str, Any], updates: int
) -> None:
    watching = await run(tmp_path, copy_model, **settings)
    assert trained_groups(tmp_path) == every_group_once()
    assert watching.metrics[-1]["optim/step"] == updates
    assert max(watching.series("async/staleness_max")) <= settings.get("max_steps_off_policy", 0)
    assert watching.series("env/all/total_episodes") == [GROUPS * SIZE] * STEPS


async def test_the_std_of_the_batch_is_that_of_all_its_updates(tmp_path: Path) -> None:
    rewards: list[float] = []

    class Uneven(CopyEnv):
        async def step(self, action: Action, *, extra: TokensWithLogprobs | None = None) -> StepResult:
            rewards.append(float(1 + sum(self.digits)) * (-1) ** len(rewards))  # of each pair one is above 0 and one below
            return StepResult(rewards[-1], True, ModelInput.empty(), [])

    backend = PlayingBackend()
    with ServiceClient(backend=backend) as service:
        settings: dict[str, Any] = {"num_substeps": 2, "advantage": {"scale": "batch", "ddof": 0}, "max_rollouts_in_flight": SIZE}
        await run(tmp_path, "base", service=service, make=Uneven, steps=1, **settings)
    passes = [call[3] for call in backend.asked("forward_backward")]
    assert [len(data) for data in passes] == [GROUPS * SIZE // 2] * 2
    sent = [datum.loss_fn_inputs["advantages"].to_numpy()[-1] for data in passes for datum in data]
    std = statistics.pstdev(rewards)
    assert sorted(sent) == pytest.approx(sorted(reward / std for reward in rewards), rel=1e-4)


@pytest.mark.parametrize(("groups", "updates"), [(1, 1), (2, 2), (3, 2), (5, 2), (7, 2), (8, 2)])
async def test_a_small_batch_has_as_many_updates_as_a_full_one(
    tmp_path: Path, copy_model: str, groups: int, updates: int
) -> None:
    parts: dict[str, Any] = {"batch_size": 8, "num_substeps": 2, "stream": {"num_minibatches": 4}}
    watching = await run(tmp_path, copy_model, steps=1, groups=groups, **parts)
    assert watching.metrics[-1]["optim/step"] == updates


async def test_a_run_that_was_interrupted_goes_on_as_if_it_had_not_been(tmp_path: Path, copy_model: str) -> None:
    whole = await run(tmp_path / "whole", copy_model, save_every=2)
    with pytest.raises(KeyboardInterrupt):
        await run(tmp_path / "cut", copy_model, save_every=2, watching=Watching(crash=2))
    assert [line["step"] for line in lines(tmp_path / "cut", "metrics.jsonl")] == [0, 1, 2]
    resumed = await run(tmp_path / "cut", copy_model, save_every=2)
    assert resumed.events == ["rl 2/4", "step 2", "step 3", "checkpoint 000004", "end 4"]
    assert [line["step"] for line in lines(tmp_path / "cut", "metrics.jsonl")] == [0, 1, 2, 3]
    assert trained_groups(tmp_path / "cut") == every_group_once()
    for name in ("reward/total", "optim/loss", "optim/entropy"):
        assert resumed.series(name) == pytest.approx(whole.series(name)[2:], abs=1e-6)


async def test_an_interrupted_run_off_policy_trains_each_group_once_too(tmp_path: Path, copy_model: str) -> None:
    settings: dict[str, Any] = {"max_steps_off_policy": 2, "save_every": 1, "max_rollouts_in_flight": 6}
    with pytest.raises(KeyboardInterrupt):
        await run(tmp_path, copy_model, watching=Watching(crash=2), **settings)
    await run(tmp_path, copy_model, **settings)
    assert trained_groups(tmp_path) == every_group_once()
    assert [line["step"] for line in lines(tmp_path, "groups.jsonl")] == [0, 1, 2, 3]


async def test_a_run_that_is_over_does_nothing_more_but_can_be_made_longer(tmp_path: Path, copy_model: str) -> None:
    await run(tmp_path, copy_model, max_steps=2)
    again = await run(tmp_path, copy_model, max_steps=2)
    assert again.events == ["rl 2/2", "end 2"]
    longer = await run(tmp_path, copy_model, max_steps=3)
    assert longer.events == ["rl 2/3", "step 2", "checkpoint 000003", "end 3"]
    with pytest.raises(ConfigError, match="has made 3 steps already, and max_steps=1"):
        await run(tmp_path, copy_model, max_steps=1)


async def test_a_directory_of_another_run_is_refused(tmp_path: Path, copy_model: str) -> None:
    await run(tmp_path, copy_model, steps=1)
    with pytest.raises(ConfigError, match="holds a run whose loss_fn, temperature was another"):
        await run(tmp_path, copy_model, steps=1, loss_fn="ppo", temperature=0.5)


async def test_environments_that_raise_and_hang_cost_attempts_and_no_step(tmp_path: Path, copy_model: str) -> None:
    calls = [0]

    class Shaky(CopyEnv):
        async def step(self, action: Action, *, extra: TokensWithLogprobs | None = None) -> StepResult:
            calls[0] += 1
            if calls[0] % 7 == 3:
                raise OSError("the simulator crashed")
            if calls[0] % 11 == 5:
                await asyncio.Event().wait()
            return await super().step(action, extra=extra)

    failures = {"backoff_s": 0.0, "group_attempts": 9, "env_timeout_s": 0.2}
    watching = await run(tmp_path, copy_model, make=Shaky, failures=failures)
    assert trained_groups(tmp_path) == every_group_once()
    assert sum(watching.series("rollouts/retried_groups")) > 0
    assert watching.series("env/all/total_episodes") == [GROUPS * SIZE] * STEPS


async def test_environments_that_always_fail_end_the_run_or_are_left_out(tmp_path: Path, copy_model: str) -> None:
    class Odd(CopyEnv):
        async def step(self, action: Action, *, extra: TokensWithLogprobs | None = None) -> StepResult:
            if sum(self.digits) % 2:
                raise OSError("the simulator can't do that")
            return await super().step(action, extra=extra)

    with pytest.raises(EnvironmentFailed, match="the simulator can't do that"):
        await run(tmp_path / "raise", copy_model, make=Odd)
    dropping = {"backoff_s": 0.0, "on_group_failure": "drop"}
    watching = await run(tmp_path / "drop", copy_model, make=Odd, failures=dropping)
    assert trained_groups(tmp_path / "drop") == every_group_once()
    failed = sum(watching.series("rollouts/failed_groups"))
    assert 0 < failed < STEPS * GROUPS
    assert sum(watching.series("env/all/total_episodes")) == SIZE * (STEPS * GROUPS - failed)


async def test_a_step_of_which_nothing_can_be_learnt_changes_nothing(tmp_path: Path, copy_model: str) -> None:
    class Unscored(CopyEnv):
        async def step(self, action: Action, *, extra: TokensWithLogprobs | None = None) -> StepResult:
            result = await super().step(action, extra=extra)
            return StepResult(None, True, result.next_observation, [])

    watching = await run(tmp_path, copy_model, make=Unscored, steps=2)
    assert watching.series("env/all/unscored") == [GROUPS * SIZE] * 2
    assert all("optim/step" not in metrics and "reward/total" not in metrics for metrics in watching.metrics)


@pytest.mark.parametrize("settings", [{"preset": "grpo"}, {"preset": "dr_grpo"}, {"preset": "dapo"}, {"loss_fn": "gspo"}])
async def test_presets_and_losses_run(tmp_path: Path, copy_model: str, settings: dict[str, Any]) -> None:
    watching = await run(tmp_path, copy_model, steps=2, **settings)
    assert watching.metrics[-1]["optim/step"] == 2


async def test_distance_from_the_base_model_and_from_the_last_step_is_measured(tmp_path: Path, copy_model: str) -> None:
    kl = {"reward_coef": 0.1, "token_coef": 0.1}
    watching = await run(tmp_path, copy_model, steps=2, kl=kl, post_kl=True, adam={"learning_rate": 1e-2})
    base = watching.series("kl_policy_base")
    assert base[0] == pytest.approx(0.0, abs=1e-6)  # the policy is the base model still
    assert abs(base[1]) > 1e-4
    assert watching.series("kl_pre_post_v2")[0] > 1e-6


async def test_a_model_that_breaks_is_an_error_at_its_step(tmp_path: Path, copy_model: str) -> None:
    class Infinite(CopyEnv):
        async def step(self, action: Action, *, extra: TokensWithLogprobs | None = None) -> StepResult:
            result = await super().step(action, extra=extra)
            return StepResult(float("inf"), True, result.next_observation, [], result.metrics)

    with pytest.raises(TrainingError, match=r"env/copy/reward/total is inf in step 0"):
        await run(tmp_path, copy_model, make=Infinite)
    assert not (tmp_path / "metrics.jsonl").exists()


async def test_a_metric_that_is_no_number_is_left_out_of_its_mean(
    tmp_path: Path, copy_model: str, caplog: pytest.LogCaptureFixture
) -> None:
    speeds = [math.nan, math.inf, 2.0, 4.0] * SIZE

    class Measured(CopyEnv):
        async def step(self, action: Action, *, extra: TokensWithLogprobs | None = None) -> StepResult:
            result = await super().step(action, extra=extra)
            measured = {"speed": speeds.pop(), "lost": math.nan}
            return StepResult(result.reward, True, result.next_observation, [], measured)

    watching = await run(tmp_path, copy_model, steps=1, make=Measured)
    assert watching.series("env/copy/speed") == watching.series("env/all/speed") == [3.0]
    assert "env/all/lost" not in watching.metrics[0]
    [record] = [one for one in caplog.records if "metrics" in one.name]
    assert record.getMessage() == "environments or rewards measured no finite number, which is left out of the means: lost, speed"


def test_the_settings_of_the_run_are_kept_beside_it(tmp_path: Path) -> None:
    assert copy_config(tmp_path, "m").model_dump(mode="json")["log_path"] == str(tmp_path)

"""Code data sets through the loop: the sandbox is there, local and on Ray, and what it refuses is no wrong answer."""

from __future__ import annotations

from typing import Any

import pytest

from reward_loop import DataProto, RewardLoopManager
from reward_loop.errors import ConfigError
from tests.fakes import config_of, text_batch
from tests.results import rows

TRUTH = {"inputs": ["2 3\n", "4 5\n"], "outputs": ["5", "9"]}
RIGHT = "```python\nprint(sum(map(int, input().split())))\n```"
HALF = "```python\nprint(5)\n```"
CRASH = "```python\nimport os\nos.abort()\n```"
SPIN = "```python\nwhile True: pass\n```"
TEXTS = [RIGHT, HALF, "It is five.", CRASH, SPIN]


def batch() -> DataProto:
    return text_batch(TEXTS, data_source=["apps"] * len(TEXTS), reward_model=[{"ground_truth": TRUTH}] * len(TEXTS))


def check_verdicts(**reward_model: Any) -> None:
    config = config_of(
        reward_model={"on_error": "mask", **reward_model},
        custom_reward_function={"reward_kwargs": {"continuous": True}},
        sandbox={"timeout_s": 2.0},
    )
    with RewardLoopManager(config) as manager:
        result = manager.compute_rm_score(batch())
    assert rows(result, "reward_message") == [""] * 5
    assert rows(result, "rm_scores") == [[1.0], [0.5], [0.0], [0.0], [0.0]]
    assert rows(result, "verdict") == ["passed", "failed", "no_code", "crashed", "timeout"]


@pytest.mark.parametrize("manager", ["naive", "prime"])
def test_programs_are_judged_in_the_sandbox(manager: str) -> None:
    check_verdicts(reward_manager={"name": manager})


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_ray_workers_have_a_sandbox_each() -> None:
    check_verdicts(executor="ray", num_workers=2)


def test_one_by_one_gives_the_same() -> None:
    check_verdicts(use_reward_loop=False)


def test_a_level_that_the_machine_does_not_offer_is_an_error_of_the_samples() -> None:
    config = config_of(reward_model={"on_error": "mask"}, sandbox={"python": "/no/such/python"})
    with RewardLoopManager(config) as manager:
        result = manager.compute_rm_score(batch())
    assert rows(result, "reward_status") == ["error", "error", "ok", "error", "error"]  # no program, no sandbox needed
    assert all("sandbox.python" in message for message in rows(result, "reward_message") if message)


def test_a_function_that_takes_the_sandbox_learns_of_it_before_any_sample() -> None:
    async def compute_score(solution_str: str, sandbox: Any) -> float:
        return 1.0

    with pytest.raises(ConfigError, match=r"sandbox\.python"):
        RewardLoopManager(config_of(sandbox={"python": "/no/such/python"}), compute_score=compute_score)


def test_a_function_of_ones_own_runs_programs() -> None:
    async def compute_score(solution_str: str, sandbox: Any) -> float:
        return float((await sandbox.run_program(solution_str, b"")).stdout)

    with RewardLoopManager(config_of(), compute_score=compute_score) as manager:
        assert rows(manager.compute_rm_score(text_batch(["print(2 ** 3)"])), "rm_scores") == [[8.0]]

"""The manager that grades in processes of its own; what the processes themselves do is in tests/isolation."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from reward_loop.data import DataProto
from reward_loop.errors import ConfigError, InvalidReward, RewardFunctionError, RewardTimeout, Unscorable, WorkerDied
from reward_loop.functions.custom import adapt, load_function
from reward_loop.managers import RewardManagerBase
from reward_loop.managers.prime import PrimeRewardManager
from tests.fakes import config_of, text_batch, tiny_tokenizer, token_batch

GRADER = """
import os

def compute_score(data_source, solution_str, ground_truth, extra_info, raw_prompt=None, response_ids=None):
    inputs = dict(locals())
    match solution_str:
        case "raise": raise ValueError("boom")
        case "none": return None
        case "nan": return float("nan")
        case "crash": os._exit(7)
        case "hang":
            while True: pass
        case "process": return {"score": 1.0, "process": os.getpid()}
        case _: return {"score": 1.0, "seen": inputs}
"""


def config(**kwargs: Any) -> Any:
    return config_of(reward_model={"timeout_s": 0.3, "reward_manager": "prime", "reward_kwargs": {"num_processes": 1, **kwargs}})


@pytest.fixture(scope="module")
def prime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RewardManagerBase]:
    file = tmp_path_factory.mktemp("prime") / "grader.py"
    file.write_text(GRADER)
    manager = PrimeRewardManager(config(), tiny_tokenizer(), adapt(load_function(str(file), "compute_score"), {}))
    manager.check()
    yield manager
    manager.close()


async def score(manager: RewardManagerBase, text: str) -> dict[str, Any]:
    return await manager.run_single(text_batch([text]))


async def test_the_function_gets_in_another_process_what_every_manager_gives_it(prime: RewardManagerBase) -> None:
    data: DataProto = token_batch(
        ["It is 42."],
        extra_info=[{"nested": [1]}],
        raw_prompt=[[{"role": "user", "content": "What is 6*7?"}]],
        tool_extra_fields=[{"calls": 2}],
        __num_turns__=np.array([3]),
        reward_scores=[{"tool": 0.5}],
    )
    assert (await prime.run_single(data))["reward_extra_info"]["seen"] == {
        "data_source": "fake",
        "solution_str": "It is 42.",
        "ground_truth": "truth 0",
        "extra_info": {"nested": [1], "calls": 2, "num_turns": 3, "rollout_reward_scores": {"tool": 0.5}},
        "raw_prompt": [{"role": "user", "content": "What is 6*7?"}],
        "response_ids": [*tiny_tokenizer()("It is 42.")["input_ids"], tiny_tokenizer().eos_token_id],
    }
    assert (await score(prime, "process"))["reward_extra_info"]["process"] != os.getpid()


@pytest.mark.parametrize(
    ("text", "error", "problem"),
    [
        ("raise", RewardFunctionError, r"ValueError: boom \(.*grader\.py:7 in compute_score\)"),
        ("none", Unscorable, "returned None"),
        ("nan", InvalidReward, "finite number"),
        ("crash", WorkerDied, "exit code 7"),
        ("hang", RewardTimeout, r"not scored within 0\.3 s"),
    ],
)
async def test_a_sample_that_goes_wrong_costs_itself(
    prime: RewardManagerBase, text: str, error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        await score(prime, text)
    assert (await score(prime, "next"))["reward_score"] == 1.0


async def test_the_reward_model_is_offered_where_there_is_one() -> None:
    def compute_score(solution_str: str, reward_router_address: str, reward_model_tokenizer: object) -> dict[str, object]:
        return {"score": 1.0, "seen": (reward_router_address, reward_model_tokenizer)}

    manager = PrimeRewardManager(config(), None, compute_score, "host:1", "theirs")
    assert (await score(manager, "x"))["reward_extra_info"]["seen"] == ("host:1", "theirs")
    manager.close()


async def async_score(solution_str: str) -> float:
    return 1.0


class AsyncGrader:
    async def __call__(self, solution_str: str) -> float:
        return 1.0


@pytest.mark.parametrize("function", [async_score, AsyncGrader()])
def test_an_async_function_is_refused(function: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError, match=r"reward_manager prime grades in other processes and takes synchronous .* use naive"):
        PrimeRewardManager(config(), None, function).check()


def test_a_function_that_cannot_work_is_refused() -> None:
    with pytest.raises(ConfigError, match="takes nothing of the rollout"):
        PrimeRewardManager(config(), None, lambda: 1.0).check()


def test_the_number_of_processes_is_that_of_the_cores_unless_given() -> None:
    def manager(**kwargs: Any) -> PrimeRewardManager:
        return PrimeRewardManager(config(**kwargs), None, lambda solution_str: 1.0)

    assert manager(num_processes=3).grader_settings["processes"] == 3
    assert manager(num_processes=None).grader_settings["processes"] == len(os.sched_getaffinity(0))
    with pytest.raises(ConfigError, match=r"reward_kwargs\.num_processes: .*\(got 0\)"):
        manager(num_processes=0).check()


def test_closing_one_that_never_scored_starts_nothing() -> None:
    manager = PrimeRewardManager(config(), None, lambda solution_str: 1.0)
    manager.close()
    assert "graders" not in vars(manager)

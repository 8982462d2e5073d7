"""As prime; without Ray this process is the node's only worker. The pool that Ray workers share needs a cluster."""

from __future__ import annotations

import os

import pytest

from reward_loop.errors import ConfigError
from reward_loop.isolation.pool import GraderPool
from reward_loop.managers.prime import PrimeRewardManager
from reward_loop.managers.remote import RemoteRewardManager
from tests.fakes import config_of, text_batch

CONFIG = config_of(reward_model={"reward_manager": "remote", "timeout_s": 5.0, "reward_kwargs": {"num_processes": 1}})


async def test_without_ray_it_grades_in_processes_of_its_own() -> None:
    def compute_score(solution_str: str) -> dict[str, object]:
        import os

        return {"score": float(len(solution_str)), "process": os.getpid()}

    manager = RemoteRewardManager(CONFIG, None, compute_score)
    result = await manager.run_single(text_batch(["four"]))
    manager.close()
    assert result["reward_score"] == 4.0
    assert result["reward_extra_info"]["process"] != os.getpid()


def test_only_where_the_function_runs_differs_from_prime() -> None:
    assert {name for name in vars(RemoteRewardManager) if not name.startswith("__")} == {"start_graders", "grader_settings"}
    assert issubclass(RemoteRewardManager, PrimeRewardManager)
    graders = RemoteRewardManager(CONFIG, None, lambda solution_str: 1.0).start_graders()
    assert isinstance(graders, GraderPool)
    graders.close()


def test_an_async_function_is_refused() -> None:
    async def compute_score(solution_str: str) -> float:
        return 1.0

    with pytest.raises(ConfigError, match="reward_manager remote grades in other processes"):
        RemoteRewardManager(CONFIG, None, compute_score).check()

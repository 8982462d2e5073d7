"""Every fast path gives what `use_reward_loop: false`, the slow path, gives: same rewards, same masks, same columns."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reward_loop import DataProto, RewardLoopManager
from tests.fakes import config_of, text_batch, token_batch
from tests.results import rows

TEXTS = st.sampled_from(["", "a", "bb", "the answer is 42", "fail", "none", "nan", "per token"])
EXTRA_INFOS = st.lists(
    st.dictionaries(st.sampled_from(["bonus", "weight"]), st.integers(0, 3)).map(lambda info: {**info, "log": []}),
    min_size=1,
    max_size=3,
)

FORMS: list[Callable[..., DataProto]] = [text_batch, token_batch]


@st.composite
def batches(draw: st.DrawFn) -> DataProto:
    """Rollouts as text or tokens: duplicates, empty ones, trajectories of several outputs, shared extra_info objects."""
    pool: list[dict[str, Any]] = draw(EXTRA_INFOS)
    texts = draw(st.lists(TEXTS, max_size=12))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=len(texts), max_size=len(texts)))

    columns: dict[str, list[Any]] = {
        "extra_info": column(st.sampled_from(pool)),
        "reward_model": column(st.sampled_from([{"ground_truth": "42"}, {"ground_truth": "a"}])),
        "tool_extra_fields": column(st.sampled_from([None, {"bonus": 7}, {"tool": "python"}])),
        "__num_turns__": column(st.integers(1, 4)),
    }
    if draw(st.booleans()):
        columns["trajectory_id"] = column(st.sampled_from(["s", "t", None]))
    batch: DataProto = draw(st.sampled_from(FORMS))(texts, **columns)
    return batch


def rule(
    solution_str: str, ground_truth: str, extra_info: dict[str, Any], response_ids: list[int] | None = None
) -> float | list[float] | dict[str, Any] | None:
    """Depends on extra_info and writes to it, so that a row which sees another's gets another reward."""
    extra_info["log"].append(solution_str)
    extra_info["bonus"] = extra_info.get("bonus", 0) + extra_info["num_turns"]
    score: float = len(solution_str) + 10.0 * len(extra_info["log"]) + 100.0 * extra_info["bonus"]
    if solution_str == "fail":
        raise ValueError(f"{ground_truth} {score}")
    if solution_str == "none":
        return None
    if solution_str == "nan":
        return float("nan")
    if solution_str == "per token" and response_ids is not None:
        return [score + place for place, _ in enumerate(response_ids)]
    if ground_truth in solution_str:
        return score
    return {"score": score, f"of_length_{len(solution_str)}": [ground_truth], "extra_info": copy.deepcopy(extra_info)}


async def rule_async(
    solution_str: str, ground_truth: str, extra_info: dict[str, Any], response_ids: list[int] | None = None
) -> float | list[float] | dict[str, Any] | None:
    await asyncio.sleep(0)
    return rule(solution_str, ground_truth, extra_info, response_ids)


def result_of(manager: RewardLoopManager, data: DataProto) -> dict[str, Any]:
    result = manager.compute_rm_score(data)
    columns = {name: column.tolist() for name, column in result.non_tensor_batch.items()}
    assert list(columns) == result.meta_info["reward_extra_keys"]
    tensors = {name: rows(result, name) for name in ("rm_scores", "reward_mask")}
    return {**columns, **tensors}


def managed(tokenizer_path: str, function: Any, **reward_model: Any) -> RewardLoopManager:
    policy = {"model": {"path": tokenizer_path}}
    config = config_of(reward_model={"on_error": "mask", **reward_model}, actor_rollout_ref=policy)
    return RewardLoopManager(config, compute_score=function)


@pytest.fixture(scope="module")
def slow_path(tokenizer_path: str) -> Iterator[RewardLoopManager]:
    with managed(tokenizer_path, rule, use_reward_loop=False) as manager:
        yield manager


@pytest.fixture(scope="module")
def fast_paths(tokenizer_path: str) -> Iterator[dict[str, RewardLoopManager]]:
    with (
        managed(tokenizer_path, rule) as threads,
        managed(tokenizer_path, rule_async) as tasks,
        managed(tokenizer_path, rule, cache={"enable": True}) as cached,
    ):
        yield {"threads": threads, "tasks": tasks, "cached": cached}


@pytest.fixture(scope="module")
def ray_path(tokenizer_path: str, ray_cluster: None) -> Iterator[RewardLoopManager]:
    with managed(tokenizer_path, rule, executor="ray", num_workers=2) as manager:
        yield manager


common = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@common
@given(batches())
def test_threads_tasks_and_the_cache_give_what_the_slow_path_gives(
    slow_path: RewardLoopManager, fast_paths: dict[str, RewardLoopManager], data: DataProto
) -> None:
    expected = result_of(slow_path, data)
    for name, manager in fast_paths.items():
        assert (name, result_of(manager, data)) == (name, expected)
    assert all(info["log"] == [] for info in data.non_tensor_batch["extra_info"])


@pytest.mark.ray
@settings(common, max_examples=20)
@given(batches())
def test_ray_gives_what_the_slow_path_gives(slow_path: RewardLoopManager, ray_path: RewardLoopManager, data: DataProto) -> None:
    assert result_of(ray_path, data) == result_of(slow_path, data)


def test_the_rule_of_these_tests_would_show_a_shared_extra_info(slow_path: RewardLoopManager) -> None:
    shared = {"log": [], "num_turns": 1}
    assert rule("a", "42", shared) != rule("a", "42", shared)
    data = text_batch(["a", "a"], extra_info=[shared, shared], __num_turns__=[1, 1])
    scores = result_of(slow_path, data)["rm_scores"]
    assert scores[0] == scores[1]

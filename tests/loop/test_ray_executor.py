"""Workers as Ray actors, on a real cluster."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reward_loop import DataProto, RewardLoopManager
from reward_loop.errors import ConfigError, DataError
from tests.fakes import config_of, text_batch
from tests.pipe import Pipe
from tests.results import rows

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'reward-loop[ray]'")

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


def judge(solution_str: str, extra_info: dict[str, Any]) -> dict[str, Any] | None:
    """Does what functions do: depends on extra_info and writes to it, fails, refuses, returns what can't be sent."""
    if solution_str == "refuse":
        return None
    if solution_str == "unsendable":
        return {"score": 1.0, "match": re.match("u", solution_str)}
    extra_info["row"] += len(solution_str)
    return {"score": 1.0 / (solution_str != "fail"), "row": extra_info["row"], f"key_{len(solution_str)}": os.getpid()}


async def judge_async(solution_str: str, extra_info: dict[str, Any]) -> dict[str, Any] | None:
    await asyncio.sleep(0)
    return judge(solution_str, extra_info)


def on_ray(function: Any = None, **settings: Any) -> RewardLoopManager:
    reward_model = {"executor": "ray", "num_workers": 1, "on_error": "mask", **settings}
    return RewardLoopManager(config_of(reward_model=reward_model), compute_score=function)


@pytest.fixture(scope="module")
def workers(ray_cluster: None) -> Iterator[RewardLoopManager]:
    """Two workers that score with `judge`; tests that kill none share them."""
    with on_ray(judge, num_workers=2) as manager:
        yield manager


def outcome_of(result: DataProto) -> dict[str, list[Any]]:
    columns = {name: column.tolist() for name, column in result.non_tensor_batch.items() if not name.startswith("key_")}
    return {**columns, **{name: rows(result, name) for name in ("rm_scores", "reward_mask")}}


def statuses(result: DataProto) -> list[str]:
    return rows(result, "reward_status")


def pids(result: DataProto) -> set[int]:
    found = rows(result, "pid")
    return {pid for pid in found if pid is not None}


# -- the same results, elsewhere -------------------------------------------------------------------------------------

TEXTS = ["a", "bb", "fail", "", "refuse"] * 20


def test_a_batch_gets_what_it_gets_locally(workers: RewardLoopManager) -> None:
    with RewardLoopManager({"reward_model": {"on_error": "mask"}}, compute_score=judge) as local:
        expected = outcome_of(local.compute_rm_score(text_batch(TEXTS)))
    assert outcome_of(workers.compute_rm_score(text_batch(TEXTS))) == expected
    assert expected["reward_status"][:5] == ["ok", "ok", "error", "unscorable", "unscorable"]


def test_an_async_function_gives_the_same(workers: RewardLoopManager) -> None:
    with on_ray(judge_async) as manager:
        result = manager.compute_rm_score(text_batch(TEXTS))
    assert statuses(result) == statuses(workers.compute_rm_score(text_batch(TEXTS)))


def test_samples_are_scored_in_other_processes_and_all_workers_take_some(workers: RewardLoopManager) -> None:
    result = workers.compute_rm_score(text_batch(["aa"] * 200))
    found = set(rows(result, "key_2"))
    assert len(found) == 2
    assert os.getpid() not in found


def test_groups_stay_together() -> None:
    def sizes(solution_strs: list[str]) -> list[float]:
        return [float(len(solution_strs))] * len(solution_strs)

    data = text_batch(["x"] * 30, uid=[row % 4 for row in range(30)])
    with on_ray(sizes, reward_manager={"name": "group"}) as manager:
        result = manager.compute_rm_score(data)
    assert rows(result, "rm_scores") == [[8.0] if row % 4 < 2 else [7.0] for row in range(30)]


async def test_a_stream_comes_out_whole(workers: RewardLoopManager) -> None:
    items = [text_batch(["a"]), text_batch(["bb", "fail"]), *(text_batch(["ccc"]) for _ in range(40))]
    found = [(scored.item, scored.row, scored.outcome.status) async for scored in workers.stream(items, max_pending=8)]
    assert sorted(found) == sorted([(0, 0, "ok"), (1, 0, "ok"), (1, 1, "error"), *((item, 0, "ok") for item in range(2, 42))])


def test_a_rollout_loop_may_call_a_worker_by_its_handle(workers: RewardLoopManager) -> None:
    handles = workers.reward_loop_worker_handles
    assert handles is not None
    assert len(handles) == 2
    for handle in handles:
        result = ray.get(handle.compute_score.remote(text_batch(["bb"])))
        assert (result["reward_score"], result["reward_extra_info"]["row"]) == (1.0, 2)


def test_two_managers_live_side_by_side(workers: RewardLoopManager) -> None:
    with on_ray(judge) as other:
        assert statuses(other.compute_rm_score(text_batch(["a"]))) == ["ok"]
        assert statuses(workers.compute_rm_score(text_batch(["a"]))) == ["ok"]
        named = {(actor["name"], actor["namespace"]) for actor in ray.util.list_named_actors(all_namespaces=True)}
    assert {name for name, _ in named} == {"reward_loop_worker_0", "reward_loop_worker_1"}
    assert len({namespace for _, namespace in named}) == 2


# -- errors come as themselves ---------------------------------------------------------------------------------------


def test_what_a_worker_cannot_be_built_with_is_a_config_error_of_the_manager() -> None:
    with pytest.raises(ConfigError, match=r"gdpo needs algorithm\.gdpo_reward_keys"):
        on_ray(judge, reward_manager={"name": "gdpo"})


def test_a_malformed_batch_is_a_data_error_with_its_own_row_number(workers: RewardLoopManager) -> None:
    texts: list[Any] = ["a"] * 90
    texts[77] = 5
    with pytest.raises(DataError, match="row 77 holds 5"):
        workers.compute_rm_score(text_batch(texts))


def test_extra_info_that_cannot_be_sent_costs_only_its_sample(workers: RewardLoopManager) -> None:
    result = workers.compute_rm_score(text_batch(["a", "unsendable", "b"]))
    assert statuses(result) == ["ok", "error", "ok"]
    assert "can't be sent from a worker: TypeError: cannot pickle 're.Match' object" in rows(result, "reward_message")[1]


# -- workers that die ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mortals(ray_cluster: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RewardLoopManager, Pipe]]:
    """Two workers that die of some samples; whoever has died has a successor when the next batch comes."""
    pipe = Pipe(tmp_path_factory.mktemp("mortals") / "pipe")
    with on_ray(partial(dies_or_scores, path=pipe.path), num_workers=2) as manager:
        yield manager, pipe
    pipe.close()


def dies_or_scores(solution_str: str, path: Path) -> dict[str, Any]:
    """ "victim" tells its process id and waits to be killed, the first time; "poison" ends its process each time."""
    if solution_str == "poison":
        os._exit(1)
    killed = path.with_name("killed")
    if solution_str == "victim" and not killed.exists():
        killed.touch()
        path.write_text(str(os.getpid()))
        signal.pause()
    return {"score": 1.0, "pid": os.getpid()}


async def test_kill_minus_nine_in_mid_run_loses_nothing_and_repeats_nothing(mortals: tuple[RewardLoopManager, Pipe]) -> None:
    manager, pipe = mortals
    items = [text_batch(["victim" if number == 5 else "x"]) for number in range(60)]
    found: list[tuple[int, str]] = []

    async def consume() -> None:
        found.extend([(scored.item, scored.outcome.status) async for scored in manager.stream(items, max_pending=20)])

    consumer = asyncio.create_task(consume())
    victim = int(await asyncio.to_thread(pipe.hear))
    os.kill(victim, signal.SIGKILL)
    await consumer
    assert sorted(found) == [(number, "ok") for number in range(60)]
    later = await manager.compute_rm_score_async(text_batch(["x"] * 200))
    assert set(statuses(later)) == {"ok"}
    assert len(pids(later)) == 2  # the dead worker's successor takes its part
    assert victim not in pids(later)


def test_a_sample_that_kills_its_worker_each_time_is_an_error_and_all_others_are_right(
    mortals: tuple[RewardLoopManager, Pipe],
) -> None:
    manager, _ = mortals
    texts = ["x", "poison", *["x"] * 18]
    result = manager.compute_rm_score(text_batch(texts))
    assert statuses(result) == ["error" if text == "poison" else "ok" for text in texts]
    assert [row[0] for row in rows(result, "rm_scores")] == [float(text != "poison") for text in texts]
    assert rows(result, "reward_message")[1].startswith("WorkerDied: ")


# -- leaving early ---------------------------------------------------------------------------------------------------


_began = asyncio.Event()  # in the worker: the tests' process never sets it


async def says_when_it_is_cancelled(solution_str: str, path: Path) -> float:
    if solution_str == "waits":
        _began.set()
        try:
            await asyncio.Event().wait()
        finally:
            path.write_text("cancelled")  # noqa: ASYNC240 - a pipe that a test reads
    await _began.wait()
    return 1.0


async def test_leaving_a_stream_early_cancels_what_workers_do(pipe: Pipe) -> None:
    with on_ray(partial(says_when_it_is_cancelled, path=pipe.path)) as manager:
        stream = manager.stream([text_batch(["waits"]), text_batch(["x"])])
        async for _ in stream:
            break
        await stream.aclose()
        assert await asyncio.to_thread(pipe.hear) == "cancelled"

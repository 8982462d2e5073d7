"""Where a synchronous function runs: the same rewards everywhere, and in processes what hangs or crashes costs only itself."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from reward_loop import RewardLoopManager, RewardLoopWorker
from reward_loop.errors import ConfigError
from reward_loop.functions.isolated import isolated
from tests.fakes import config_of, text_batch, tiny_tokenizer, token_batch
from tests.graders import RULES, where
from tests.pipe import Pipe
from tests.processes import ROOT, wait_until_gone
from tests.results import rows

PLACES = ["inline", "thread", "process"]


def on(isolation: str, function: Any = where, **settings: Any) -> RewardLoopManager:
    settings = {"on_error": "mask", "isolation": isolation, "grader": {"processes": 2}, **settings}
    return RewardLoopManager(config_of(reward_model=settings), compute_score=function)


# -- the choice ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("manager", ["naive", "dapo", "prime"])
@pytest.mark.parametrize("isolation", PLACES)
def test_the_rewards_are_the_same_wherever_the_function_runs(isolation: str, manager: str, tmp_path: Path) -> None:
    tiny_tokenizer().save_pretrained(tmp_path)
    kwargs = {"dapo": {"max_resp_len": 8, "overlong_buffer_cfg": {"enable": True, "len": 6}}}.get(manager, {})
    config = config_of(
        reward_model={"isolation": isolation, "on_error": "mask", "reward_manager": {"name": manager}, "reward_kwargs": kwargs},
        actor_rollout_ref={"model": {"path": str(tmp_path)}},
    )
    reference = config.model_copy(update={"reward_model": config.reward_model.model_copy(update={"use_reward_loop": False})})
    data = token_batch(["a", "raise", "", "a much longer answer"] * 20)
    with RewardLoopManager(config, compute_score=where) as fast, RewardLoopManager(reference, compute_score=where) as slow:
        results = [manager.compute_rm_score(data) for manager in (fast, slow)]
    for name in ("rm_scores", "reward_mask", "reward_status"):
        assert rows(results[0], name) == rows(results[1], name)
    messages = [[text.partition(" (")[0] for text in rows(result, "reward_message")] for result in results]
    assert messages[0] == messages[1]
    assert messages[0][1] == "ValueError: boom"


@pytest.mark.parametrize("isolation", PLACES)
def test_it_runs_where_the_configuration_says(isolation: str) -> None:
    with on(isolation) as manager:
        result = manager.compute_rm_score(text_batch(["a", "bb"] * 10))
    threads, pids = set(rows(result, "thread")), set(rows(result, "pid"))
    assert (os.getpid() in pids) == (isolation != "process")
    if isolation == "inline":
        assert threads == {"reward-loop"}
    elif isolation == "thread":
        assert all(name.startswith("reward-") and name != "reward-loop" for name in threads)
    else:
        assert threads == {"MainThread"}


def test_a_function_may_declare_where_it_runs() -> None:
    declared = isolated("process")(lambda solution_str: {"score": 1.0, "pid": os.getpid()})
    with on("auto", declared) as manager:
        assert os.getpid() not in rows(manager.compute_rm_score(text_batch(["a"])), "pid")
    with on("thread", declared) as manager:
        assert rows(manager.compute_rm_score(text_batch(["a"])), "pid") == [os.getpid()]


def test_each_rule_runs_where_it_declares_also_within_one_batch() -> None:
    sources = RULES * 10
    with RewardLoopManager(config_of()) as manager:
        result = manager.compute_rm_score(text_batch(["a"] * 20, data_source=sources))
    here = [pid == os.getpid() for pid in rows(result, "pid")]
    assert here == [False, True] * 10


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_rules_that_only_this_process_has_registered_are_known_to_workers_and_their_graders() -> None:
    sources = RULES * 10
    with RewardLoopManager(config_of(reward_model={"executor": "ray", "num_workers": 1})) as manager:
        result = manager.compute_rm_score(text_batch(["a"] * 20, data_source=sources))
    pids = rows(result, "pid")
    assert os.getpid() not in pids
    assert set(pids[::2]).isdisjoint(pids[1::2])


async def test_inline_lets_others_have_the_event_loop() -> None:
    worker = RewardLoopWorker(config_of(reward_model={"isolation": "inline"}), compute_score=lambda solution_str: busy(0.002))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await worker.compute_score_batch(text_batch(["a"] * 100))
    counting.cancel()
    assert turns > 10


def busy(seconds: float) -> float:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    return 1.0


# -- mistakes --------------------------------------------------------------------------------------------------------


async def judge(solution_str: str) -> float:
    return 1.0


async def wants_a_sandbox(solution_str: str, sandbox: object) -> float:
    return 1.0


def test_an_async_function_can_not_be_put_into_processes() -> None:
    with pytest.raises(ConfigError, match=r"isolation=process grades in other processes .* isolation=auto"):
        on("process", judge)


def test_neither_can_one_that_takes_the_sandbox() -> None:
    with pytest.raises(ConfigError, match=r"takes `sandbox` can't run in another process"):
        on("process", lambda solution_str, sandbox: 1.0)


def test_what_can_not_be_loaded_elsewhere_is_said_before_any_sample(tmp_path: Path) -> None:
    file = tmp_path / "grader.py"
    file.write_text(
        f"import os\nif os.getpid() != {os.getpid()}: import no_such_module\ndef compute_score(solution_str): return 1.0\n"
    )
    with pytest.raises(ConfigError, match=r"No module named 'no_such_module'.*isolation=thread"):
        RewardLoopManager(config_of(reward_model={"isolation": "process"}, custom_reward_function={"path": str(file)}))


def test_an_unknown_place_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"isolated\('fork'\): it must be one of inline, thread, process"):
        isolated("fork")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


# -- what goes wrong -------------------------------------------------------------------------------------------------

NASTY = """
import ctypes, re

def compute_score(solution_str):
    if solution_str == "hang":
        return re.match("(a*)*b", "a" * 100)  # in C: no signal reaches it
    if solution_str == "crash":
        ctypes.string_at(0)
    return float(len(solution_str))
"""


@pytest.fixture
def nasty(tmp_path: Path) -> str:
    file = tmp_path / "nasty.py"
    file.write_text(NASTY)
    return str(file)


def mixed(samples: int, nasty_ones: int) -> list[str]:
    texts = [f"{number}" for number in range(samples)]
    texts[3 :: samples // nasty_ones] = ["hang"] * nasty_ones
    texts[5 :: samples // nasty_ones] = ["crash"] * nasty_ones
    return texts


def scored(texts: list[str]) -> list[tuple[str, float]]:
    outcomes = {"hang": ("timeout", 0.0), "crash": ("error", 0.0)}
    return [outcomes.get(text, ("ok", float(len(text)))) for text in texts]


def check_a_mixed_batch(config: dict[str, Any], texts: list[str], deadline_s: float) -> None:
    with RewardLoopManager(config) as manager:
        clean = text_batch([text for text in texts if text not in {"hang", "crash"}])
        manager.compute_rm_score(clean)
        started = time.monotonic()
        result = manager.compute_rm_score(text_batch(texts))
        took_s = time.monotonic() - started
        assert [*zip(rows(result, "reward_status"), (row[0] for row in rows(result, "rm_scores")), strict=True)] == scored(texts)
        assert deadline_s <= took_s < 2 * deadline_s
        started = time.monotonic()
        assert set(rows(manager.compute_rm_score(clean), "reward_status")) == {"ok"}
        assert time.monotonic() - started < deadline_s / 2  # nothing of the last batch is in the way


def test_ten_that_hang_and_ten_that_crash_of_a_thousand_cost_only_themselves(nasty: str) -> None:
    deadline_s = 3.0
    config = {
        "reward_model": {"isolation": "process", "timeout_s": deadline_s, "on_error": "mask"},
        "custom_reward_function": {"path": nasty},
    }
    check_a_mixed_batch(config, mixed(1000, 10), deadline_s)


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("manager", ["naive", "remote"])
def test_the_same_holds_on_ray(nasty: str, manager: str) -> None:
    deadline_s = 4.0
    config = {
        "reward_model": {
            "executor": "ray",
            "num_workers": 2,
            "reward_manager": manager,
            "isolation": "process",
            "timeout_s": deadline_s,
            "on_error": "mask",
        },
        "custom_reward_function": {"path": nasty},
    }
    check_a_mixed_batch(config, mixed(400, 4), deadline_s)


def test_waiting_for_a_process_does_not_count_towards_the_deadline() -> None:
    with on("process", timeout_s=1.0, grader={"processes": 1, "max_processes": 1}) as manager:
        assert set(rows(manager.compute_rm_score(text_batch(["wait"] * 8)), "reward_status")) == {"ok"}


DRIVER = """
import sys
from reward_loop import RewardLoopManager
from tests.fakes import text_batch
from tests.isolation.test_pool import starts_others

with RewardLoopManager({"reward_model": {"isolation": "process", "timeout_s": None}}, compute_score=starts_others) as manager:
    manager.compute_rm_score(text_batch([sys.argv[1]]))
"""


async def test_kill_minus_nine_of_the_trainer_leaves_no_process(pipe: Pipe) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    driver = await asyncio.create_subprocess_exec(sys.executable, "-c", DRIVER, str(pipe.path), cwd=ROOT, env=environment)
    pids = [int(pid) for pid in (await asyncio.to_thread(pipe.hear, 60.0)).split()]
    driver.kill()
    await driver.wait()
    await asyncio.to_thread(wait_until_gone, pids)

"""Equal content is scored once."""

from __future__ import annotations

import asyncio
import linecache
import os
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reward_loop.config import CacheConfig
from reward_loop.data import DataProto
from reward_loop.errors import DataError
from reward_loop.functions.custom import adapt, load_function
from reward_loop.managers.cache import DiskStore, MemoryStore, Store, judge_key, open_store, unit_key, with_cache
from reward_loop.outcome import Reward
from tests.fakes import config_of, text_batch, token_batch

MEGABYTE = 1 << 20


class Counting:
    """Scores each row by its place among all calls; holds its callers up until `released`."""

    def __init__(self, *results: Sequence[Reward | Exception]) -> None:
        self.calls = 0
        self.results = list(results)
        self.released = asyncio.Event()
        self.released.set()

    async def __call__(self, data: DataProto) -> Sequence[Reward | Exception]:
        self.calls += 1
        call = self.calls
        await self.released.wait()
        return self.results.pop(0) if self.results else [Reward(float(call))] * len(data)


# -- scoring -----------------------------------------------------------------------------------------------------------


async def test_equal_content_is_scored_once() -> None:
    scorer = Counting()
    score = with_cache(scorer, MemoryStore(10), "judge")
    assert await score(text_batch(["a"])) == await score(text_batch(["a"])) == [Reward(1.0)]
    assert await score(text_batch(["b"])) == [Reward(2.0)]
    assert scorer.calls == 2


async def test_equal_content_is_scored_once_also_at_the_same_time() -> None:
    scorer = Counting()
    scorer.released.clear()
    score = with_cache(scorer, MemoryStore(10), "judge")
    scored = asyncio.gather(*(score(text_batch([text])) for text in "aaabaa"))
    await asyncio.sleep(0)
    scorer.released.set()
    assert await scored == [[Reward(2.0 if text == "b" else 1.0)] for text in "aaabaa"]
    assert scorer.calls == 2


async def test_what_was_raised_is_not_kept() -> None:
    async def scorer(data: DataProto) -> Sequence[Reward | Exception]:
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("judge is down")
        return [Reward(1.0)]

    calls: list[int] = []
    score = with_cache(scorer, MemoryStore(10), "judge")
    with pytest.raises(ConnectionError):
        await score(text_batch(["a"]))
    assert await score(text_batch(["a"])) == [Reward(1.0)]


async def test_a_group_of_which_a_row_failed_is_not_kept() -> None:
    failed: list[Reward | Exception] = [Reward(1.0), ValueError("boom")]
    scorer = Counting(failed, [Reward(1.0), Reward(2.0)])
    score = with_cache(scorer, MemoryStore(10), "judge")
    assert await score(text_batch(["a", "b"])) == failed
    assert await score(text_batch(["a", "b"])) == await score(text_batch(["a", "b"])) == [Reward(1.0), Reward(2.0)]
    assert scorer.calls == 2


async def test_content_that_has_no_key_is_an_error_with_its_remedy() -> None:
    score = with_cache(Counting(), MemoryStore(10), "judge")
    with pytest.raises(DataError, match=r"holds a lock that can't be pickled .*reward_model\.cache\.enable=false"):
        await score(text_batch(["a"], extra_info=[{"lock": threading.Lock()}]))


# -- keys --------------------------------------------------------------------------------------------------------------


def key(data: DataProto, judge: str = "judge") -> str:
    return unit_key(data, judge)


def test_padding_is_not_part_of_the_key() -> None:
    narrow = token_batch(["42"], prompts=["short"])
    wide = token_batch(["42", "a much longer response"], prompts=["short", "a much longer prompt"], width=50)[:1]
    assert wide.tensor("prompts") is not None
    assert key(narrow) == key(wide)


def test_the_order_of_columns_and_keys_is_not_part_of_the_key() -> None:
    one = text_batch(["42"], a=[1], b=[2], extra_info=[{"x": 1, "y": 2}])
    other = text_batch(["42"], b=[2], a=[1], extra_info=[{"y": 2, "x": 1}])
    assert key(one) == key(other)


def test_the_group_is_not_part_of_the_key() -> None:
    assert key(text_batch(["42"], uid=["q1"])) == key(text_batch(["42"], uid=["q2"])) == key(text_batch(["42"]))


@pytest.mark.parametrize(
    "other",
    [
        text_batch(["43"]),
        text_batch(["42"], reward_model=[{"ground_truth": "other"}]),
        text_batch(["42"], extra_info=[{"row": 1}]),
        text_batch(["42"], extra_info=[{"row": 0.0}]),
        text_batch(["42"], extra_info=[{"row": "0"}]),
        text_batch(["42"], extra_info=[{"row": [0]}]),
        text_batch(["42"], extra_info=[{"row": 0, "more": None}]),
        text_batch(["42"], data_source=["other"]),
        text_batch(["42"], raw_prompt=[[{"role": "user", "content": "?"}]]),
        text_batch(["42", "42"]),
        token_batch(["42"]),
    ],
)
def test_whatever_a_grader_may_see_is_part_of_the_key(other: DataProto) -> None:
    assert key(other) != key(text_batch(["42"]))


def test_response_and_prompt_tokens_are_part_of_the_key() -> None:
    base = token_batch(["42"], prompts=["6*7?"])
    assert key(base) == key(token_batch(["42"], prompts=["6*7?"]))
    assert key(base) != key(token_batch(["43"], prompts=["6*7?"]))
    assert key(base) != key(token_batch(["42"], prompts=["6*8?"]))


def test_the_judge_is_part_of_the_key() -> None:
    assert key(text_batch(["42"]), "judge") != key(text_batch(["42"]), "another")


def test_where_one_text_ends_and_the_next_begins_is_part_of_the_key() -> None:
    assert key(text_batch(["a", "b"], extra_info=None)) != key(text_batch(["ab", ""], extra_info=None))
    assert key(text_batch(["x"], a=[["1", "2"]])) != key(text_batch(["x"], a=[["1;str:'2'"]]))


def test_arrays_and_sets_are_keyed_by_content() -> None:
    first = text_batch(["x"], a=[np.array([1, 2])], b=[{"p", "q", "r"}])
    second = text_batch(["x"], a=[np.array([1, 2])], b=[{"r", "q", "p"}])
    assert key(first) == key(second) != key(text_batch(["x"], a=[np.array([1, 3])], b=[{"p", "q", "r"}]))


# -- who judges --------------------------------------------------------------------------------------------------------


def compute_score(solution_str: str, bonus: float = 0.0) -> float:
    return bonus


def test_the_settings_that_judge_are_part_of_the_judge() -> None:
    def judge(**settings: Any) -> str:
        return judge_key(config_of(**settings), compute_score)

    base = judge()
    assert base == judge()
    assert base == judge(reward_model={"num_workers": 3, "timeout_s": 1.0})
    for settings in (
        {"reward_model": {"reward_manager": "dapo"}},
        {"reward_model": {"reward_kwargs": {"max_resp_len": 3}}},
        {"reward_model": {"model": {"path": "judge-7b"}}},
        {"custom_reward_function": {"reward_kwargs": {"bonus": 1.0}}},
        {"algorithm": {"gdpo_reward_keys": ["accuracy"]}},
    ):
        assert judge(**settings) != base


PLAIN = "def compute_score(solution_str): return 1.0\n"
PARTIAL = "import functools\ndef score(solution_str, x): return x\ncompute_score = functools.partial(score, x=1.0)\n"


@pytest.mark.parametrize("source", [PLAIN, PARTIAL])
def test_an_edited_function_file_is_another_judge(tmp_path: Path, source: str) -> None:
    file = tmp_path / "reward.py"
    file.write_text(source)
    function = adapt(load_function(str(file), "compute_score"), {})
    before = judge_key(config_of(), function)
    assert before == judge_key(config_of(), function)
    file.write_text(source.replace("1.0", "-10.0"))
    linecache.checkcache()
    assert judge_key(config_of(), function) != before


def test_a_function_without_a_file_is_known_by_its_name() -> None:
    scope: dict[str, Any] = {"__name__": "nowhere"}
    exec("def one(solution_str): return 1.0\ndef two(solution_str): return 2.0", scope)
    assert judge_key(config_of(), scope["one"]) == judge_key(config_of(), scope["one"]) != judge_key(config_of(), scope["two"])


# -- stores ------------------------------------------------------------------------------------------------------------


def test_the_configuration_chooses_the_store(tmp_path: Path) -> None:
    assert isinstance(open_store(CacheConfig()), MemoryStore)
    assert isinstance(open_store(CacheConfig(path=str(tmp_path))), DiskStore)


def test_memory_keeps_what_was_used_last() -> None:
    store = MemoryStore(2)
    store.put("a", [Reward(1.0)])
    store.put("b", [Reward(2.0)])
    assert store.get("a") == [Reward(1.0)]
    store.put("c", [Reward(3.0)])
    assert [store.get(name) for name in "abc"] == [[Reward(1.0)], None, [Reward(3.0)]]


@pytest.mark.parametrize("open_one", [lambda path: MemoryStore(9), lambda path: DiskStore(str(path), MEGABYTE)])
def test_a_store_gives_back_what_was_put_and_none_otherwise(tmp_path: Path, open_one: Callable[[Path], Store]) -> None:
    store = open_one(tmp_path)
    rewards = [Reward(1.5, {"acc": True, "steps": [1]}, (1.0, 0.5)), Reward(0.0)]
    store.put("a", rewards)
    assert store.get("a") == rewards
    assert store.get("b") is None


async def test_a_directory_is_shared_by_two_stores(tmp_path: Path) -> None:
    first, second = (with_cache(Counting([Reward(n)]), DiskStore(str(tmp_path), MEGABYTE), "judge") for n in (1.0, 2.0))
    assert await first(text_batch(["a"])) == await second(text_batch(["a"])) == [Reward(1.0)]


def test_a_directory_stays_within_its_size(tmp_path: Path) -> None:
    store = DiskStore(str(tmp_path), MEGABYTE // 4)
    for number in range(60):
        store.put(str(number), [Reward(float(number), {"text": "x" * 20_000})])
    assert store.get("0") is None
    assert store.get("59") is not None


NEXT_RUN = """
import sys
from reward_loop.config import RewardLoopConfig
from reward_loop.data import DataProto
from reward_loop.functions.custom import adapt, load_function
from reward_loop.managers.cache import DiskStore, judge_key, unit_key

judge = judge_key(RewardLoopConfig(), adapt(load_function(sys.argv[2], "compute_score"), {}))
data = DataProto.from_dict(non_tensors={"extra_info": [{"tags": {"x", "y", "z"}}], "solution_str": ["a"]})
sys.stdout.write(str(DiskStore(sys.argv[1], 1 << 20).get(unit_key(data, judge))))
"""


async def test_the_next_run_finds_what_this_one_scored(tmp_path: Path) -> None:
    file = tmp_path / "reward.py"
    file.write_text(PLAIN)
    judge = judge_key(config_of(), adapt(load_function(str(file), "compute_score"), {}))
    score = with_cache(Counting(), DiskStore(str(tmp_path), MEGABYTE), judge)
    data = text_batch(["a"], extra_info=[{"tags": {"z", "y", "x"}}], data_source=None, reward_model=None)
    rewards = await score(data)
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    arguments = [sys.executable, "-c", NEXT_RUN, str(tmp_path), str(file)]
    next_run = await asyncio.create_subprocess_exec(*arguments, env=environment, stdout=asyncio.subprocess.PIPE)
    found, _ = await next_run.communicate()
    assert found.decode() == str(rewards)

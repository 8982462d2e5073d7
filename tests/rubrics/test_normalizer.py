from __future__ import annotations

import copy
import json
import logging
import math
import pickle
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.rubrics.normalizer import MethodName, Moments, RewardNormalizer
from reward_loop.rubrics.normalizer.window import Window, spread

METHODS: tuple[MethodName, ...] = ("running_mean_std", "min_max", "percentile", "population")
rewards = st.floats(-1e6, 1e6, allow_nan=False)
some_rewards = st.lists(rewards, min_size=1, max_size=40)
batches = st.lists(st.tuples(rewards, st.sampled_from(["chess", "code", "math"])), min_size=1, max_size=40)
every_method = pytest.mark.parametrize("method", METHODS)


def normalizer(method: MethodName, **settings: Any) -> RewardNormalizer:
    return RewardNormalizer(method, per_environment=method != "population", **settings)


def one_by_one(normalize: RewardNormalizer, values: Sequence[float]) -> list[float]:
    return [normalize(reward=value, env_id="chess") for value in values]


def test_the_running_z_score_is_that_of_the_textbook() -> None:
    assert one_by_one(RewardNormalizer(), [1, 2, 3, 4]) == pytest.approx([0, 1, 1.224745, 1.341641], abs=1e-6)


def test_large_rewards_keep_their_small_variance() -> None:
    normalize = RewardNormalizer()
    assert one_by_one(normalize, [1e9, 1e9 + 1, 1e9 + 2]) == pytest.approx([0, 1, 1.224745], abs=1e-6)
    assert normalize.stats["chess"].std ** 2 == pytest.approx(2 / 3)


@pytest.mark.parametrize("value", [0.0, 0.1, -7.3, 1e12 + 0.1])
def test_constant_rewards_are_0_one_by_one_and_in_batches(value: float) -> None:
    normalize = RewardNormalizer()
    assert one_by_one(normalize, [value] * 50) == [0.0] * 50
    assert normalize.batch([value] * 7, ["chess"] * 7) == [0.0] * 7


def test_rewards_closer_together_than_eps_are_0() -> None:
    assert one_by_one(RewardNormalizer(eps=1e-3), [1.0, 1.0001]) == [0.0, 0.0]
    assert one_by_one(RewardNormalizer(eps=1e-8), [1.0, 1.0001])[1] == pytest.approx(1.0)


def test_min_max_scales_the_range_seen_so_far() -> None:
    assert one_by_one(RewardNormalizer("min_max"), [2, 4, 3, 10, -2]) == [0, 1, 0.5, 1, 0]


def test_a_range_of_one_value_gives_what_was_asked_for() -> None:
    assert one_by_one(RewardNormalizer("min_max"), [5, 5]) == [0.0, 0.0]
    assert one_by_one(RewardNormalizer("min_max", degenerate=0.5), [5, 5, 6]) == [0.5, 0.5, 1.0]


def test_min_max_of_frozen_statistics_stays_between_0_and_1() -> None:
    normalize = RewardNormalizer("min_max")
    one_by_one(normalize, [0, 10])
    normalize.update = False
    assert one_by_one(normalize, [-5, 5, 50]) == [0.0, 0.5, 1.0]


def test_a_percentile_is_the_mid_rank_so_that_sparse_rewards_differ() -> None:
    normalized = RewardNormalizer("percentile").batch([0] * 95 + [1] * 5, ["chess"] * 100)
    assert normalized == [0.475] * 95 + [0.975] * 5


def test_a_percentile_compares_with_the_window_only() -> None:
    normalize = RewardNormalizer("percentile", window=3)
    assert one_by_one(normalize, [9, 9, 9, 1, 2, 3]) == [0.5, 0.5, 0.5, pytest.approx(1 / 6), 0.5, pytest.approx(5 / 6)]
    assert normalize.stats["chess"].n == 6


@given(some_rewards)
def test_a_mid_rank_is_between_0_and_1_and_averages_one_half(values: list[float]) -> None:
    normalized = RewardNormalizer("percentile").batch(values)
    assert all(0 < rank < 1 for rank in normalized)
    assert math.fsum(normalized) / len(values) == pytest.approx(0.5)


def test_a_range_of_percentiles_is_scaled_to_0_and_1_and_what_lies_beyond_lies_beyond() -> None:
    normalize = RewardNormalizer("percentile", percentile_range=(5, 95))
    normalized = normalize.batch(list(range(101)))
    assert [normalized[place] for place in (5, 50, 95)] == [0.0, 0.5, 1.0]
    assert normalized[0] == pytest.approx(-5 / 90)
    assert normalized[100] == pytest.approx(95 / 90)


def test_a_range_of_percentiles_falls_back_to_the_least_and_greatest_on_sparse_rewards() -> None:
    normalize = RewardNormalizer("percentile", percentile_range=(5, 95))
    assert normalize.batch([0] * 99 + [1]) == [0.0] * 99 + [1.0]
    assert RewardNormalizer("percentile", percentile_range=(5, 95)).batch([3, 3, 3]) == [0.0] * 3


@given(some_rewards, st.floats(0, 100))
def test_percentiles_are_those_of_numpy(values: list[float], percent: float) -> None:
    assert Window(100, values).percentile(percent) == pytest.approx(float(np.percentile(values, percent)), abs=1e-6)


def test_a_population_is_the_batch_over_all_environments() -> None:
    normalized = normalizer("population").batch([1, 2, 3, 6], ["chess", "code", "math", "chess"])
    assert normalized == pytest.approx([-1.069, -0.535, 0, 1.604], abs=1e-3)


def test_a_population_of_one_or_of_equals_is_0() -> None:
    normalize = normalizer("population")
    assert normalize.batch([3.0]) == [0.0]
    assert normalize.batch([7.0] * 3) == [0.0] * 3


def test_a_batch_of_a_population_knows_nothing_of_those_before_but_a_single_reward_does() -> None:
    normalize = normalizer("population")
    normalize.batch([100.0, 200.0], ["chess", "code"])
    assert normalize.batch([1.0, 3.0], ["chess", "code"]) == [-1.0, 1.0]
    assert normalize(3.0, "math") == pytest.approx((3 - 61.4) / np.std([100, 200, 1, 3, 3]))


def test_a_population_says_that_it_does_not_keep_environments_apart(caplog: pytest.LogCaptureFixture) -> None:
    assert not RewardNormalizer("population", per_environment=True).per_environment
    assert "per_environment=True is ignored" in caplog.text
    caplog.clear()
    normalizer("population")
    assert caplog.text == ""


def test_environments_are_kept_apart_unless_told_otherwise() -> None:
    apart, together = RewardNormalizer(), RewardNormalizer(per_environment=False)
    for normalize in (apart, together):
        normalize.batch([0, 1, 100, 200], ["chess", "chess", "code", "code"])
    assert {name: seen.mean for name, seen in apart.stats.items()} == {"chess": 0.5, "code": 150.0}
    assert {name: seen.mean for name, seen in together.stats.items()} == {"default": 75.25}


def test_no_environment_is_the_default_one_and_a_number_is_its_text() -> None:
    normalize = RewardNormalizer()
    normalize(1.0)
    normalize(1.0, env_id=7)
    normalize.batch([1.0, 2.0])
    normalize.batch([1.0, 2.0], [None, "7"])
    assert {name: seen.n for name, seen in normalize.stats.items()} == {"default": 4, "7": 2}


def test_values_are_clipped_last() -> None:
    rare = [0.0] * 999 + [1.0]
    assert max(RewardNormalizer().batch(rare)) == 10.0
    assert max(RewardNormalizer(clip_range=None).batch(rare)) == pytest.approx(31.6, abs=0.1)
    assert max(RewardNormalizer(clip_range=(-1, 2)).batch(rare)) == 2.0


@every_method
def test_frozen_statistics_stay_as_they_are(method: MethodName) -> None:
    normalize = normalizer(method)
    normalize.batch([1.0, 2.0, 5.0], ["chess", "chess", "code"])
    before = normalize.state_dict()
    normalize.update = False
    normalize.batch([9.0, -9.0], ["chess", "math"])
    normalize(4.0, "code")
    assert normalize.state_dict() == before


@every_method
def test_before_there_are_statistics_a_frozen_normalizer_only_clips(method: MethodName) -> None:
    normalize = normalizer(method, update=False)
    assert [normalize(3.0), normalize(30.0), normalize(-30.0, "chess")] == [3.0, 10.0, -10.0]
    assert normalize.stats == {}


@every_method
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e300, None, "1", [1.0]])
def test_what_is_no_finite_number_is_refused_and_changes_nothing(method: MethodName, bad: Any) -> None:
    normalize = normalizer(method)
    normalize.batch([1.0, 2.0])
    before = normalize.state_dict()
    with pytest.raises(ValueError, match="finite number"):
        normalize(bad)
    with pytest.raises(ValueError, match="leave samples without a reward out"):
        normalize.batch([1.0, bad, 2.0])
    assert normalize.state_dict() == before


@pytest.mark.parametrize("good", [True, 1, 1.0, np.float32(1), np.int64(1), np.array(1.0), torch.tensor(1.0)])
def test_numbers_of_every_kind_are_taken(good: Any) -> None:
    normalize = RewardNormalizer()
    normalize(good)
    normalize.batch([good, good])
    assert normalize.stats["default"] == Moments(3, 1.0, 0.0, 1.0, 1.0)


def test_arrays_are_taken_and_nothing_at_all_is_a_batch_too() -> None:
    rewards_of_torch: Any = torch.tensor([1.0, 3.0])
    assert RewardNormalizer().batch(np.array([1.0, 3.0])) == [-1.0, 1.0]
    assert RewardNormalizer().batch(rewards_of_torch) == [-1.0, 1.0]
    assert [normalizer(method).batch([], []) for method in METHODS] == [[]] * 4


@pytest.mark.parametrize("env_ids", [["chess"], ["a", "b", "c"], "ab"])
def test_every_reward_of_a_batch_has_an_environment(env_ids: Any) -> None:
    normalize = RewardNormalizer()
    with pytest.raises(ValueError, match="environment of each"):
        normalize.batch([1.0, 2.0], env_ids)
    assert normalize.stats == {}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"clip_range": (1, 1)}, "low < high"),
        ({"clip_range": (2, 1)}, "low < high"),
        ({"clip_range": (math.nan, 1)}, "low < high"),
        ({"clip_range": 5}, "two numbers"),
        ({"clip_range": (1, 2, 3)}, "two numbers"),
        ({"eps": -1.0}, "eps=-1.0"),
        ({"eps": 0.0}, "eps=0.0"),
        ({"eps": math.nan}, "eps=nan"),
        ({"window": 0}, "window=0"),
        ({"max_environments": 0}, "max_environments=0"),
        ({"method": "zscore"}, "is none of running_mean_std"),
        ({"percentile_range": (5, 95)}, "is for method='percentile'"),
        ({"method": "percentile", "percentile_range": (95, 5)}, "between 0 and 100"),
        ({"method": "percentile", "percentile_range": (-1, 50)}, "between 0 and 100"),
        ({"method": "min_max", "degenerate": math.nan}, "degenerate=nan"),
    ],
)
def test_a_wrong_setting_is_refused_by_name(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        RewardNormalizer(**wrong)


@every_method
@given(batch=batches, before=batches, seed=st.integers(0, 1000))
def test_neither_result_nor_statistics_of_a_batch_depend_on_its_order(
    method: MethodName, batch: list[tuple[float, str]], before: list[tuple[float, str]], seed: int
) -> None:
    order = list(range(len(batch)))
    random.Random(seed).shuffle(order)

    def run(pairs: list[tuple[float, str]]) -> tuple[list[float], str]:
        normalize = normalizer(method, window=8, max_environments=2)
        for some in (before, pairs):
            normalized = normalize.batch(*map(list, zip(*some, strict=True)))
        return normalized, json.dumps(normalize.state_dict())

    in_order, state = run(batch)
    shuffled, state_of_shuffled = run([batch[place] for place in order])
    assert shuffled == [in_order[place] for place in order]
    assert state_of_shuffled == state


@every_method
@given(shards=st.lists(batches, min_size=1, max_size=5))
def test_merged_shards_are_as_if_one_had_seen_all(method: MethodName, shards: list[list[tuple[float, str]]]) -> None:
    driver, alone = normalizer(method), normalizer(method)
    for shard in shards:
        worker = normalizer(method)
        worker.batch(*map(list, zip(*shard, strict=True)))
        driver.merge(json.loads(json.dumps(worker.drain())))
        assert worker.stats == {}
    alone.batch(*map(list, zip(*(pair for shard in shards for pair in shard), strict=True)))
    assert driver.stats.keys() == alone.stats.keys()
    for name, expected in alone.stats.items():
        merged = driver.stats[name]
        assert (merged.n, merged.low, merged.high) == (expected.n, expected.low, expected.high)
        assert merged.mean == pytest.approx(expected.mean, rel=1e-9, abs=1e-6)
        assert merged.std == pytest.approx(expected.std, rel=1e-6, abs=1e-3)
    if method == "percentile":
        held = [{name: sorted(env["window"]) for name, env in one.state_dict()["envs"].items()} for one in (driver, alone)]
        assert held[0] == held[1]


@every_method
@given(before=batches, after=batches)
def test_a_checkpoint_gives_the_same_next_results_to_the_bit(
    method: MethodName, before: list[tuple[float, str]], after: list[tuple[float, str]]
) -> None:
    original = normalizer(method, window=8)
    original.batch(*map(list, zip(*before, strict=True)))
    restored = normalizer(method, window=8)
    restored.load_state_dict(json.loads(json.dumps(original.state_dict(), allow_nan=False)))
    copies = [restored, pickle.loads(pickle.dumps(original)), copy.deepcopy(original)]
    for value, name in after:
        expected = original(value, name)
        assert [other(value, name) for other in copies] == [expected] * 3
    expected_batch = original.batch(*map(list, zip(*after, strict=True)))
    assert [other.batch(*map(list, zip(*after, strict=True))) for other in copies] == [expected_batch] * 3


def test_a_state_has_the_form_that_the_notes_give() -> None:
    normalize = RewardNormalizer("percentile")
    normalize.batch([1.0, 3.0], ["chess", "chess"])
    assert normalize.state_dict() == {
        "version": 1,
        "method": "percentile",
        "per_environment": True,
        "envs": {"chess": {"n": 2, "mean": 2.0, "m2": 2.0, "min": 1.0, "max": 3.0, "window": [1.0, 3.0]}},
    }


def state_with(**changes: Any) -> dict[str, Any]:
    env = {"n": 2, "mean": 2.0, "m2": 2.0, "min": 1.0, "max": 3.0, "window": [1.0, 3.0]}
    top = {key: value for key, value in changes.items() if key in ("version", "method", "per_environment", "envs")}
    env |= {key: value for key, value in changes.items() if key not in top}
    return {"version": 1, "method": "percentile", "per_environment": True, "envs": {"chess": env}, **top}


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"version": None},
        {"method": "min_max"},
        {"per_environment": False},
        {"envs": None},
        {"envs": {"chess": {}}},
        {"envs": {"chess": None}},
        {"n": 0},
        {"n": 2.5},
        {"n": True},
        {"n": 10**400},
        {"mean": math.nan},
        {"mean": "x"},
        {"m2": -1.0},
        {"m2": math.inf},
        {"min": 4.0},
        {"max": math.inf},
        {"window": None},
        {"window": []},
        {"window": [1.0, 9.0]},
        {"window": [math.nan]},
        {"window": 3},
    ],
)
def test_a_state_of_another_kind_or_a_damaged_one_is_refused_and_changes_nothing(changes: dict[str, Any]) -> None:
    normalize = RewardNormalizer("percentile")
    normalize.load_state_dict(state_with())
    before = normalize.state_dict()
    for take in (normalize.load_state_dict, normalize.merge):
        with pytest.raises(ValueError, match=r"state|statistics"):
            take(state_with(**changes))
    assert normalize.state_dict() == before


def test_a_longer_window_than_this_one_leaves_its_newest() -> None:
    normalize = RewardNormalizer("percentile", window=2)
    normalize.load_state_dict(state_with(window=[1.0, 3.0, 2.0]))
    assert normalize.state_dict()["envs"]["chess"]["window"] == [3.0, 2.0]


def test_the_windows_of_two_workers_lose_their_older_rewards_alike_in_either_order() -> None:
    workers = [RewardNormalizer("percentile", window=4) for _ in range(2)]
    for number, worker in enumerate(workers):
        one_by_one(worker, [float(10 * number + age) for age in range(4)])
    merged: list[list[float]] = []
    for first, second in (workers, reversed(workers)):
        driver = RewardNormalizer("percentile", window=4)
        driver.merge(first.state_dict())
        driver.merge(second.state_dict())
        merged.append(driver.state_dict()["envs"]["chess"]["window"])
    assert merged == [[2.0, 12.0, 3.0, 13.0]] * 2


def test_what_falls_out_of_a_window_is_a_fair_share_of_the_oldest_batch() -> None:
    kept = Window(100, spread([float(value) for value in range(100)]))
    kept.add([1000.0] * 50)
    survivors = [value for value in kept.values() if value < 1000]
    assert sum(value < 50 for value in survivors) in (24, 25, 26)


def test_the_environments_not_used_for_longest_are_forgotten_and_it_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    normalize = RewardNormalizer(max_environments=2)
    for env_id in ("a", "b", "a", "c", "d"):
        normalize(1.0, env_id)
    assert list(normalize.stats) == ["c", "d"]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "is env_id='c' an episode's id?" in caplog.text


def test_a_batch_of_more_environments_than_are_kept_is_normalised_all_the_same() -> None:
    normalize = RewardNormalizer(max_environments=2)
    assert normalize.batch([0, 2] * 5, [place // 2 for place in range(10)]) == [-1.0, 1.0] * 5
    assert len(normalize.stats) == 2


def test_4096_environments_are_kept() -> None:
    normalize = RewardNormalizer()
    normalize.batch([1.0] * 5000, range(5000))
    assert len(normalize.stats) == 4096


def test_10_000_rewards_are_in_a_window() -> None:
    normalize = RewardNormalizer("percentile")
    normalize.batch([float(value) for value in range(10_100)])
    assert len(normalize.state_dict()["envs"]["default"]["window"]) == 10_000


@every_method
def test_threads_lose_no_reward(method: MethodName) -> None:
    normalize = normalizer(method, window=100)
    values = [float(value % 7) for value in range(400)]

    def work(number: int) -> None:
        for value in values:
            assert -10 <= normalize(value, "chess") <= 10
        normalize.batch(values, [f"own {number}"] * len(values))
        json.dumps(normalize.state_dict())

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    total = sum(seen.n for seen in normalize.stats.values())
    assert total == 2 * 8 * 400
    seen = normalize.stats["chess" if normalize.per_environment else "default"]
    assert seen.mean == pytest.approx(math.fsum(values) / 400)
    assert seen.std == pytest.approx(float(np.std(values)))


def test_a_z_score_of_large_batches_is_that_of_numpy() -> None:
    generator = np.random.default_rng(0)
    normalize, seen = RewardNormalizer(clip_range=None), np.empty(0)
    for _ in range(20):
        batch = generator.normal(5e6, 3, 500)
        seen = np.concatenate([seen, batch])
        assert normalize.batch(batch) == pytest.approx(list((batch - seen.mean()) / seen.std()), abs=1e-4)

"""Two ranks that train one model together get what one process gets."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import torch

from reward_loop.rinker.engine.engine import Engine
from reward_loop.rinker.engine.ranks import Ranks
from reward_loop.rinker.runtime.rank_group import Host, shares
from reward_loop.rinker.runtime.settings import Strategy
from tests.rinker.runtime.rank_scenarios import RANKS, Outcome, Scenario, run, run_rank, scenarios

STRATEGIES: tuple[Strategy, ...] = ("ddp", "fsdp2")


@pytest.fixture(scope="module")
def found(language_model: str, reward_model: str) -> list[Scenario]:
    return scenarios(language_model, reward_model)


@pytest.fixture(scope="module")
def alone(found: list[Scenario], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    directory = tmp_path_factory.mktemp("alone")
    return {scenario.name: run(scenario, Ranks(), directory / scenario.name) for scenario in found}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("together")


@pytest.fixture(scope="module")
def together(found: list[Scenario], checkpoints: Path) -> Iterator[list[dict[str, Outcome]]]:
    """The outcomes of both ranks."""
    host = Host("127.0.0.1", RANKS, timeout_s=120.0)
    with ProcessPoolExecutor(RANKS, multiprocessing.get_context("spawn")) as pool:
        calls = [pool.submit(run_rank, rank, host.meeting, found, STRATEGIES, checkpoints) for rank in range(RANKS)]
        yield [call.result() for call in calls]


EXACT = ["full", "lora", "reward"]
NAMES = [f"{strategy} {scenario}" for strategy in STRATEGIES for scenario in EXACT]
exact = pytest.mark.parametrize("name", NAMES)
# Sums in bfloat16 depend on what is in a batch, and Adam's first steps on their signs: only what is kept can be compared.
each = pytest.mark.parametrize("name", [*NAMES, *(f"{strategy} bfloat16" for strategy in STRATEGIES)])


@exact
def test_outputs_and_metrics_are_those_of_one_process_in_the_order_of_the_data(
    alone: dict[str, Outcome], together: list[dict[str, Outcome]], name: str
) -> None:
    expected = alone[name.split()[1]]
    for rank in together:
        outcome = rank[name]
        assert len(outcome.outputs) == 12
        assert all(mine == pytest.approx(its, abs=1e-5) for mine, its in zip(outcome.outputs, expected.outputs, strict=True))
        assert all(mine == pytest.approx(its, abs=1e-5) for mine, its in zip(outcome.metrics, expected.metrics, strict=True))


@exact
def test_the_weights_are_those_of_one_process_and_come_from_one_rank(
    alone: dict[str, Outcome], together: list[dict[str, Outcome]], name: str
) -> None:
    expected, (first, second) = alone[name.split()[1]].weights, together
    mine = first[name].weights
    assert mine.keys() == expected.keys()
    assert all(torch.allclose(value, expected[key], atol=1e-5) for key, value in mine.items())
    assert not second[name].weights


@each
def test_a_checkpoint_takes_all_ranks_back(together: list[dict[str, Outcome]], name: str) -> None:
    outcome = together[0][name]
    assert all(torch.equal(outcome.restored[key], value) for key, value in outcome.weights.items())


@each
def test_a_checkpoint_of_ranks_is_one_of_a_single_process(
    found: list[Scenario], together: list[dict[str, Outcome]], checkpoints: Path, name: str
) -> None:
    strategy, _, kind = name.partition(" ")
    scenario = next(scenario for scenario in found if scenario.name == kind)
    engine = Engine(scenario.spec, scenario.settings)
    engine.load(checkpoints / f"{strategy}-{kind}", optimizer=True)
    expected = together[0][name].weights
    assert engine.step == 3
    assert all(torch.allclose(value.float(), expected[key].float(), atol=1e-6) for key, value in engine.weights().items())


@each
def test_all_ranks_refuse_the_same(alone: dict[str, Outcome], together: list[dict[str, Outcome]], name: str) -> None:
    assert {rank[name].refused for rank in together} == {alone[name.split()[1]].refused}


@pytest.mark.parametrize(
    ("sizes", "ranks", "dealt"),
    [
        ([5, 1, 4, 2], 2, [[0, 1], [2, 3]]),
        ([1], 3, [[0], [], []]),
        ([], 2, [[], []]),
        ([3, 3, 3], 3, [[0], [1], [2]]),
    ],
)
def test_shares_have_about_as_many_tokens_each(sizes: list[int], ranks: int, dealt: list[list[int]]) -> None:
    assert shares(sizes, ranks) == dealt

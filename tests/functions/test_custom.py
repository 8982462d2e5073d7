"""The user's reward function: how it is found, what it is called with, and what is said when it can't work."""

from __future__ import annotations

import functools
import inspect
import operator
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reward_loop.errors import ConfigError
from reward_loop.functions.custom import (
    OFFERED,
    OFFERED_TO_BATCH,
    OFFERED_WITH_MODEL,
    adapt,
    load_function,
    load_module,
    required_inputs,
    user_modules,
)

INPUTS: dict[str, Any] = {
    "data_source": "fake",
    "solution_str": "It is 42.",
    "ground_truth": "42",
    "extra_info": {"row": 0},
    "raw_prompt": None,
    "response_ids": [1, 2],
}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def write_file(source: str, name: str = "reward.py") -> str:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
        return str(file)

    return write_file


# -- finding it --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_a_function_is_loaded_from_a_file(write: Callable[..., str], prefix: str) -> None:
    path = write("def compute_score(solution_str):\n    return len(solution_str)\n")
    assert load_function(prefix + path, "compute_score")("abc") == 3


def test_a_function_is_loaded_from_a_package() -> None:
    assert load_function("pkg://operator", "add") is operator.add


def test_a_path_is_relative_to_where_the_program_runs(
    write: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("def compute_score(solution_str): return 1.0\n")
    monkeypatch.chdir(tmp_path)
    assert load_function("reward.py", "compute_score")("x") == 1.0


def test_a_file_is_run_once(write: Callable[..., str]) -> None:
    path = write("")
    assert load_module(path) is load_module(f"file://{path}")


def test_two_files_of_the_same_name_are_used_side_by_side(write: Callable[..., str]) -> None:
    first = write("def compute_score(solution_str): return 1.0\n", "a/reward.py")
    second = write("def compute_score(solution_str): return 2.0\n", "b/reward.py")
    assert [load_function(path, "compute_score")("x") for path in (first, second)] == [1.0, 2.0]


def test_classes_of_a_file_pickle(write: Callable[..., str]) -> None:
    module = load_module(write("class Judge:\n    threshold = 1\n"))
    assert type(pickle.loads(pickle.dumps(module.Judge()))) is module.Judge


def test_the_files_that_were_loaded_are_known(write: Callable[..., str]) -> None:
    path = write("")
    load_module(path)
    assert path in user_modules()


def test_a_missing_file_is_named_with_the_place_that_was_looked_at(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"nowhere\.py: there is no such file \(looked at {tmp_path}.*pkg://a\.b"):
        load_function(f"{tmp_path}/x/../nowhere.py", "compute_score")


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        load_module(str(tmp_path))


def test_a_file_that_is_not_python_is_refused(write: Callable[..., str]) -> None:
    with pytest.raises(ConfigError, match=r"reward\.yaml: not a Python file; its name must end in \.py"):
        load_module(write("a: 1\n", "reward.yaml"))


def test_a_syntax_error_shows_its_line(write: Callable[..., str]) -> None:
    path = write("import math\ndef compute_score(solution_str)\n    return 1\n")
    with pytest.raises(ConfigError, match=rf"syntax error at {path}:2: .*: def compute_score\(solution_str\)"):
        load_module(path)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("import no_such_module_anywhere\n", "ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("exit(3)\n", "SystemExit: 3"),
    ],
)
def test_a_file_that_cannot_be_imported_says_why(write: Callable[..., str], source: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"importing it raised {problem}"):
        load_module(write(source))


def test_a_file_that_failed_is_tried_again(write: Callable[..., str]) -> None:
    with pytest.raises(ConfigError):
        load_module(write("1 / 0\n"))
    path = write("def compute_score(solution_str): return 1.0  # mended\n")
    assert path not in user_modules()
    assert load_function(path, "compute_score")("x") == 1.0


def test_a_missing_package_says_so() -> None:
    with pytest.raises(ConfigError, match=r"pkg://no_such\.package: importing it raised ModuleNotFoundError"):
        load_module("pkg://no_such.package")


def test_a_missing_name_lists_what_is_there(write: Callable[..., str]) -> None:
    path = write("def score(): ...\ndef grade(): ...\ndef _private(): ...\nLIMIT = 3\n")
    with pytest.raises(
        ConfigError, match=r"has no 'compute_score'; it has \['grade', 'score'\]: set custom_reward_function\.name"
    ):
        load_function(path, "compute_score")


def test_a_name_that_is_no_function_is_refused(write: Callable[..., str]) -> None:
    with pytest.raises(ConfigError, match="'compute_score' is not callable but a float"):
        load_function(write("compute_score = 1.0\n"), "compute_score")


# -- what it is called with --------------------------------------------------------------------------------------------


def test_a_function_gets_the_arguments_that_it_takes() -> None:
    def compute_score(ground_truth: str, solution_str: str) -> bool:
        return ground_truth in solution_str

    assert adapt(compute_score, {})(**INPUTS) is True


def test_an_argument_with_a_default_is_filled() -> None:
    def compute_score(solution_str: str, response_ids: object = None) -> object:
        return response_ids

    assert adapt(compute_score, {})(**INPUTS) == [1, 2]


def test_a_keyword_only_argument_is_filled() -> None:
    def compute_score(*, solution_str: str) -> str:
        return solution_str

    assert adapt(compute_score, {})(**INPUTS) == "It is 42."


def test_a_default_stays_where_nothing_is_offered() -> None:
    def compute_score(solution_str: str, reward_router_address: str = "none", threshold: float = 0.5) -> object:
        return reward_router_address, threshold

    assert adapt(compute_score, {})(**INPUTS) == ("none", 0.5)


def test_a_function_of_any_keywords_gets_what_verl_passes() -> None:
    def compute_score(**kwargs: object) -> list[str]:
        return sorted(kwargs)

    assert adapt(compute_score, {})(**INPUTS) == ["data_source", "extra_info", "ground_truth", "solution_str"]
    with_model = adapt(compute_score, {}, OFFERED | OFFERED_WITH_MODEL)
    assert "reward_router_address" in with_model(**INPUTS, reward_router_address="host:1", reward_model_tokenizer=None)


def test_reward_kwargs_are_added_and_win() -> None:
    def compute_score(solution_str: str, ground_truth: str, threshold: float) -> object:
        return ground_truth, threshold

    assert adapt(compute_score, {"threshold": 0.5, "ground_truth": "mine"})(**INPUTS) == ("mine", 0.5)


def test_reward_kwargs_win_over_any_keywords_too() -> None:
    def compute_score(solution_str: str, **kwargs: object) -> dict[str, object]:
        return kwargs

    assert adapt(compute_score, {"ground_truth": "mine", "more": 1})(**INPUTS) == {
        "data_source": "fake",
        "ground_truth": "mine",
        "extra_info": {"row": 0},
        "more": 1,
    }


def test_adapting_twice_changes_nothing() -> None:
    def compute_score(solution_str: str, ground_truth: str, threshold: float) -> object:
        return solution_str, ground_truth, threshold

    once = adapt(compute_score, {"threshold": 0.5, "ground_truth": "mine"})
    assert adapt(once, {})(**INPUTS) == once(**INPUTS) == ("It is 42.", "mine", 0.5)


def test_an_adapted_function_is_called_what_it_was_called() -> None:
    def compute_score(solution_str: str, ground_truth: str = "") -> float:
        return 1.0

    adapted = adapt(compute_score, {})
    assert (adapted.__name__, adapted.__module__) == ("compute_score", __name__)
    assert inspect.signature(adapted) == inspect.signature(compute_score)


def test_what_a_function_cannot_do_without_is_known() -> None:
    def compute_score(solution_str: str, *, ground_truth: str, extra_info: object = None, **more: object) -> None: ...

    assert required_inputs(compute_score) == {"solution_str", "ground_truth"}
    assert required_inputs(adapt(compute_score, {"ground_truth": "mine"})) == {"solution_str"}


def test_a_function_of_many_samples_is_offered_lists() -> None:
    def compute_score(solution_strs: list[str], ground_truths: list[str]) -> list[int]:
        return [len(text) for text in solution_strs]

    inputs = {"solution_strs": ["a", "bc"], "ground_truths": ["", ""], "data_sources": ["", ""]}
    assert adapt(compute_score, {}, OFFERED_TO_BATCH)(**inputs) == [1, 2]


# -- callables of every kind -------------------------------------------------------------------------------------------


class Grader:
    def __init__(self, bonus: float = 0.0) -> None:
        self.bonus = bonus

    def __call__(self, solution_str: str) -> float:
        return len(solution_str) + self.bonus

    def grade(self, solution_str: str) -> float:
        return self(solution_str)


class AsyncGrader:
    async def __call__(self, solution_str: str) -> float:
        return float(len(solution_str))


async def async_score(solution_str: str, bonus: float = 0.0) -> float:
    return len(solution_str) + bonus


def sync_score(solution_str: str, bonus: float = 0.0) -> float:
    return len(solution_str) + bonus


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (sync_score, "sync_score"),
        (functools.partial(sync_score, bonus=1.0), "sync_score"),
        (Grader(1.0), "Grader"),
        (Grader().grade, "grade"),
        (lambda solution_str: len(solution_str), "<lambda>"),
    ],
)
def test_every_synchronous_callable_works(function: Callable[..., float], name: str) -> None:
    adapted = adapt(function, {})
    assert adapted(**INPUTS) in (9.0, 10.0)
    assert not inspect.iscoroutinefunction(adapted)
    assert (adapted.__name__, adapted.__module__) == (name, __name__)


@pytest.mark.parametrize(
    "function",
    [async_score, functools.partial(async_score, bonus=1.0), AsyncGrader(), functools.partial(AsyncGrader())],
)
async def test_every_asynchronous_callable_stays_one(function: Callable[..., Any]) -> None:
    adapted = adapt(function, {})
    assert inspect.iscoroutinefunction(adapted)
    assert inspect.iscoroutinefunction(adapt(adapted, {}))
    assert await adapted(**INPUTS) in (9.0, 10.0)


# -- what can't work ---------------------------------------------------------------------------------------------------


def needs_more(solution_str: str, rubric: str, judge: str) -> None: ...


def needs_positions(solution_str: str, /, ground_truth: str) -> None: ...


def takes_nothing() -> None: ...


def takes_no_rollout(data_source: str, ground_truth: str) -> None: ...


def takes_positions_only(*args: object) -> None: ...


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (
            needs_more,
            r"needs_more needs \['judge', 'rubric'\], not passed by keyword; it may take .*'solution_str'.*reward_kwargs",
        ),
        (needs_positions, r"needs_positions needs \['solution_str'\], not passed by keyword"),
        (takes_nothing, r"takes_nothing\(\) takes nothing of the rollout: add solution_str"),
        (takes_no_rollout, r"takes_no_rollout\(data_source, ground_truth\) takes nothing of the rollout"),
        (takes_positions_only, r"takes_positions_only\(\) takes nothing of the rollout"),
        (print, "takes nothing of the rollout|signature"),
        (max, r"max: its signature can't be read .*; wrap it in a Python function"),
    ],
)
def test_a_function_that_cannot_be_called_is_a_config_error(function: Callable[..., Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        adapt(function, {})


def test_a_missing_argument_may_come_from_reward_kwargs() -> None:
    assert adapt(needs_more, {"rubric": "short", "judge": "me"})(**INPUTS) is None


def test_a_function_of_a_reward_model_needs_one() -> None:
    def compute_score(solution_str: str, reward_router_address: str) -> str:
        return reward_router_address

    with pytest.raises(ConfigError, match="needs \\['reward_router_address'\\]"):
        adapt(compute_score, {})
    assert adapt(compute_score, {}, OFFERED | OFFERED_WITH_MODEL)(**INPUTS, reward_router_address="host:1") == "host:1"


def test_reward_kwargs_that_nobody_takes_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"sync_score takes no \['bonsu'\], given in .*reward_kwargs; it takes \['bonus', 'solution_str'\]"
    ):
        adapt(sync_score, {"bonsu": 1.0})


def test_loading_leaves_the_import_path_alone(write: Callable[..., str], tmp_path: Path) -> None:
    load_module(write(""))
    assert str(tmp_path) not in sys.path

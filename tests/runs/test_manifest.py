"""What an unfinished run depends on, and how a difference is put into words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reward_loop.functions.custom import load_function
from reward_loop.functions.rules import default_compute_score
from reward_loop.runs.fields import FieldMap
from reward_loop.runs.manifest import Manifest, changes, manifest_of
from reward_loop.runs.source import open_source
from tests.fakes import config_of

FIELDS = FieldMap("response", data_source="data_source")


@pytest.fixture
def rollouts(tmp_path: Path) -> Path:
    path = tmp_path / "rollouts.jsonl"
    path.write_text('{"response": "a", "data_source": "x"}\n')
    return path


def manifest(rollouts: Path, fields: FieldMap = FIELDS, function: Any = default_compute_score, **sections: Any) -> Manifest:
    return manifest_of(open_source(rollouts), fields, 512, config_of(**sections), function)


def test_the_same_run_has_the_same_manifest(rollouts: Path) -> None:
    assert changes(manifest(rollouts), manifest(rollouts)) == []


def test_how_fast_a_run_goes_is_no_part_of_it(rollouts: Path) -> None:
    faster = manifest(rollouts, reward_model={"max_concurrency": 9, "max_threads": 3, "timeout_s": 5.0, "executor": "ray"})
    assert changes(manifest(rollouts), faster) == []


def test_a_setting_that_matters_is_named_with_both_values(rollouts: Path) -> None:
    other = manifest(rollouts, reward_model={"on_error": "mask"}, custom_reward_function={"reward_kwargs": {"k": 1}})
    assert sorted(changes(manifest(rollouts), other)) == [
        "custom_reward_function.reward_kwargs was {} and is None",
        "custom_reward_function.reward_kwargs.k was None and is 1",
        "reward_model.on_error was 'raise' and is 'mask'",
    ]


def test_a_field_that_is_another_one_is_named(rollouts: Path) -> None:
    other = manifest(rollouts, FieldMap("other", data_source="data_source"))
    assert changes(manifest(rollouts), other) == ["field.response was 'response' and is 'other'"]


def test_an_edited_input_is_named(rollouts: Path) -> None:
    before = manifest(rollouts)
    rollouts.write_text('{"response": "b", "data_source": "x"}\n')
    assert changes(before, manifest(rollouts)) == ["the contents of the input changed"]


def test_an_edited_reward_function_is_named_even_where_it_is_loaded_already(rollouts: Path, tmp_path: Path) -> None:
    file = tmp_path / "reward.py"
    file.write_text("def compute_score(solution_str):\n    return 1.0\n")
    function = load_function(str(file), "compute_score")
    before = manifest(rollouts, function=function)
    file.write_text("def compute_score(solution_str):\n    return 2.0\n")
    assert changes(before, manifest(rollouts, function=function)) == ["the contents of the reward function's file changed"]


def test_an_edited_reward_manager_is_named(rollouts: Path, tmp_path: Path) -> None:
    file = tmp_path / "manager.py"
    code = "from reward_loop import RewardManagerBase\nclass Mine(RewardManagerBase):\n    bonus = {}\n"
    file.write_text(code.format(1))
    named = {"reward_manager": {"source": "importlib", "name": "Mine", "module": {"path": str(file)}}}
    before = manifest(rollouts, reward_model=named)
    file.write_text(code.format(2))
    assert changes(before, manifest(rollouts, reward_model=named)) == ["the contents of the reward manager's file changed"]


def test_a_function_without_a_file_is_known_by_its_name(rollouts: Path) -> None:
    namespace: dict[str, Any] = {}
    exec("def one(solution_str): ...\ndef two(solution_str): ...", {"__name__": "nowhere"}, namespace)
    one, two = (manifest(rollouts, function=namespace[name]) for name in ("one", "two"))
    assert changes(one, two) == ["the contents of the reward function's file changed"]

"""Finding a rubric's code by its name, and never by what a client says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from reward_loop.errors import ConfigError
from reward_loop.rubrics.builtin_text import RegexRubric
from reward_loop.rubrics.catalogue import builtin_factory, find_rubric, register_rubric

ONE_RUBRIC = {"schema_version": "1.0", "per_turn": [{"name": "a", "rubric": "builtin.length"}]}


def polite(solution_str: str) -> float:
    return float("please" in solution_str)


def test_what_is_registered_is_found_by_its_name() -> None:
    assert register_rubric("found")(polite) is polite
    register_rubric("coding_env.rubrics.Polite")(polite)
    assert find_rubric("found") is polite
    assert find_rubric("coding_env.rubrics.Polite") is polite


def test_a_name_means_one_rubric_which_may_be_registered_again() -> None:
    register_rubric("taken")(polite)
    register_rubric("taken")(polite)
    with pytest.raises(ConfigError, match="another name"):
        register_rubric("taken")(lambda solution_str: 1.0)


@pytest.mark.parametrize("name", ["", "builtin.mine", "file.py:mine"])
def test_a_name_that_would_be_taken_for_something_else_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="registered"):
        register_rubric(name)


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    register_rubric("politeness")(polite)
    with pytest.raises(ConfigError, match="did you mean 'politeness'"):
        find_rubric("politness")
    with pytest.raises(ConfigError, match=r"did you mean 'builtin\.regex'"):
        builtin_factory("builtin.regx")
    assert builtin_factory("politeness") is None


@pytest.mark.parametrize(
    "name", ["rule", "custom", "reward_model", "regex", "length", "llm_judge", "criteria", "pairwise", "mcp"]
)
def test_every_built_in_rubric_has_a_factory(name: str) -> None:
    assert callable(builtin_factory(f"builtin.{name}"))


def test_a_file_of_the_users_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def polite(solution_str): return 1.0\nNOT_CALLABLE = 1\n")
    assert find_rubric(f"{tmp_path}/mine.py:polite")("") == 1.0
    with pytest.raises(ConfigError, match="did you mean 'polite'"):
        find_rubric(f"{tmp_path}/mine.py:polit")
    with pytest.raises(ConfigError, match="NOT_CALLABLE"):
        find_rubric(f"{tmp_path}/mine.py:NOT_CALLABLE")
    with pytest.raises(ConfigError, match="no such file"):
        find_rubric(f"{tmp_path}/others.py:polite")
    (tmp_path / "broken.py").write_text("raise SystemExit('no')")
    with pytest.raises(ConfigError, match="SystemExit"):
        find_rubric(f"{tmp_path}/broken.py:polite")


def test_a_dotted_path_is_imported_only_below_an_allowed_prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_env").mkdir()
    (tmp_path / "my_env" / "rubrics.py").write_text("print('imported')\nclass Style: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    for refused in ((), ("my",), ("my_env.other",), ("",), ("my_env.rubrics.St",)):
        with pytest.raises(ConfigError, match=r"allowed_prefixes: \[my_env\.\]"):
            find_rubric("my_env.rubrics.Style", refused)
    assert "my_env.rubrics" not in sys.modules
    assert find_rubric("my_env.rubrics.Style", ["my_env."]).__name__ == "Style"
    assert find_rubric("my_env.rubrics.Style", ["my_env.rubrics"]).__name__ == "Style"
    with pytest.raises(ConfigError, match="did you mean 'Style'"):
        find_rubric("my_env.rubrics.Stile", ["my_env."])
    with pytest.raises(ConfigError, match="ModuleNotFoundError"):
        find_rubric("my_env.no_such.Style", ["my_env."])


def test_paths_of_this_package_are_always_allowed_and_those_of_python_never_by_default() -> None:
    assert find_rubric("reward_loop.rubrics.builtin_text.RegexRubric") is RegexRubric
    with pytest.raises(ConfigError):
        find_rubric("os.system")


@pytest.mark.parametrize(
    ("statement", "not_loaded"),
    [
        ("import reward_loop.rubrics.config_share", {"torch"}),
        (f"from reward_loop.rubrics.build import build_pipeline; build_pipeline({ONE_RUBRIC!r}).close()", set[str]()),
    ],
)
def test_no_judge_and_no_tracker_is_loaded_for_those_who_have_none(statement: str, not_loaded: set[str]) -> None:
    program = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "reward_loop" in loaded
    assert (
        loaded & ({"ray", "mcp", "openai", "wandb", "mlflow", "tensorboard", "vllm", "transformers", "sympy"} | not_loaded)
        == set()
    )

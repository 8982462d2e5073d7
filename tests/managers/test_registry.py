"""Reward managers by name: built-in, registered, imported from a file or a plugin."""

from __future__ import annotations

import importlib
import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reward_loop.config import RewardManagerConfig
from reward_loop.errors import ConfigError
from reward_loop.managers import RewardManagerBase, get_reward_manager_cls, register
from reward_loop.managers.registry import resolve_reward_manager_cls

numbers = itertools.count()


@pytest.fixture
def name() -> str:
    """A name that no other test registers."""
    return f"manager_{next(numbers)}"


MANAGER = """
from reward_loop.managers import RewardManagerBase, register

@register("{name}")
class Mine(RewardManagerBase):
    pass

class Other:
    pass
"""


@pytest.mark.parametrize("built_in", ["naive", "dapo", "gdpo", "prime", "remote", "batch", "group"])
def test_every_built_in_manager_is_found(built_in: str) -> None:
    manager = get_reward_manager_cls(built_in)
    assert issubclass(manager, RewardManagerBase)
    assert manager.__module__ == f"reward_loop.managers.{built_in}"


def test_a_registered_manager_is_found(name: str) -> None:
    @register(name)
    class Mine(RewardManagerBase): ...

    assert get_reward_manager_cls(name) is Mine


def test_a_name_means_one_class(name: str) -> None:
    @register(name)
    class Mine(RewardManagerBase): ...

    with pytest.raises(ConfigError, match=rf"'{name}' is already .*Mine; register .*Other under another name"):

        @register(name)
        class Other(RewardManagerBase): ...

    assert get_reward_manager_cls(name) is Mine


@pytest.mark.parametrize("built_in", ["naive", "remote"])
def test_the_name_of_a_built_in_manager_is_taken(built_in: str) -> None:
    with pytest.raises(ConfigError, match=rf"'{built_in}' is already reward_loop\.managers\.{built_in}\."):

        @register(built_in)
        class Mine(RewardManagerBase): ...


def test_a_class_may_be_defined_again(name: str) -> None:
    def cell() -> type:
        @register(name)
        class Mine(RewardManagerBase): ...

        return Mine

    first, second = cell(), cell()
    assert first is not second
    assert get_reward_manager_cls(name) is second


def test_an_unknown_name_gives_the_nearest_and_all_known() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown reward manager 'navie', did you mean 'naive'\?; known are \['batch', .*'dapo', .*importlib"
    ):
        get_reward_manager_cls("navie")


def test_a_name_like_no_other_gives_all_known() -> None:
    with pytest.raises(ConfigError, match=r"unknown reward manager 'xyzzy'; known are \["):
        get_reward_manager_cls("xyzzy")


# -- from a file or a package ------------------------------------------------------------------------------------------


@pytest.fixture
def module(tmp_path: Path, name: str) -> str:
    file = tmp_path / "mine.py"
    file.write_text(MANAGER.format(name=name))
    return str(file)


def resolved(path: str, **settings: Any) -> type:
    spec = {"source": "importlib", "module": {"path": path, "name": settings.pop("class_name", None)}, **settings}
    return resolve_reward_manager_cls(RewardManagerConfig.model_validate(spec))


def test_a_class_is_imported_from_a_file(module: str) -> None:
    assert resolved(module, name="Mine").__name__ == "Mine"


def test_the_class_may_be_named_in_module(module: str) -> None:
    assert resolved(module, class_name="Mine").__name__ == "Mine"


def test_a_class_of_a_file_may_be_asked_for_by_its_registered_name(module: str, name: str) -> None:
    assert resolved(module, name=name) is resolved(module, name="Mine") is get_reward_manager_cls(name)


def test_a_class_is_imported_from_a_package() -> None:
    assert resolved("pkg://reward_loop.managers.dapo", name="DapoRewardManager") is get_reward_manager_cls("dapo")


def test_a_registered_name_needs_no_module() -> None:
    assert resolve_reward_manager_cls(RewardManagerConfig(name="dapo")) is get_reward_manager_cls("dapo")


@pytest.mark.parametrize("wrong", ["Main", "register"])
def test_a_class_that_is_not_there_lists_those_that_are(module: str, wrong: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"no reward manager '{wrong}'; its classes are \['Mine', 'Other', 'RewardManagerBase'\]"
    ):
        resolved(module, name=wrong)


def test_a_missing_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        resolved(str(tmp_path / "nowhere.py"), name="Mine")


# -- plugins -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str, str], None]:
    """Installs a distribution of one module whose entry point is a reward manager."""

    def installed(name: str, source: str, target: str) -> None:
        (tmp_path / f"plugin_{name}.py").write_text(source)
        info = tmp_path / f"plugin_{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: plugin-{name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[reward_loop.managers]\n{name} = plugin_{name}{target}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()

    return installed


@pytest.mark.parametrize("source", [MANAGER, MANAGER.replace('@register("{name}")', "")])
def test_a_plugin_is_found_whether_or_not_it_registers_itself(
    install: Callable[[str, str, str], None], name: str, source: str
) -> None:
    install(name, source.format(name=name), ":Mine")
    manager = get_reward_manager_cls(name)
    assert manager is sys.modules[f"plugin_{name}"].Mine
    assert get_reward_manager_cls(name) is manager


def test_a_plugin_is_listed_before_it_is_loaded(install: Callable[[str, str, str], None], name: str) -> None:
    install(name, "1 / 0\n", ":Mine")
    with pytest.raises(ConfigError, match=rf"did you mean '{name}'\?"):
        get_reward_manager_cls(f"{name}x")


def test_a_plugin_that_cannot_be_imported_is_named(install: Callable[[str, str, str], None], name: str) -> None:
    install(name, "1 / 0\n", ":Mine")
    with pytest.raises(ConfigError, match=rf"'{name}' \(plugin_{name}:Mine\) can't be imported: ZeroDivisionError"):
        get_reward_manager_cls(name)


def test_a_plugin_must_name_a_class(install: Callable[[str, str, str], None], name: str) -> None:
    install(name, "Mine = 3\n", ":Mine")
    with pytest.raises(ConfigError, match="must name a class; it is 3"):
        get_reward_manager_cls(name)

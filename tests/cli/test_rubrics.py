"""`reward-loop rubrics`: checking a pipeline's file, and reading and changing a pipeline that runs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from reward_loop.loop_thread import LoopThread
from reward_loop.rubrics.config_server import ConfigServer
from reward_loop.rubrics.live_config import LiveConfig
from reward_loop.rubrics.reward_config import RewardConfig
from tests.cli.conftest import Command
from tests.rubrics.live import entry, live_config, weights_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def served() -> Generator[tuple[LiveConfig, str]]:
    """A live configuration and the URL at which another thread serves it."""
    thread, live = LoopThread("config-server"), live_config()
    server = ConfigServer(live)
    thread.run(server.__aenter__())
    yield live, server.url
    thread.close(server.__aexit__)


def written(folder: Path, text: str) -> Path:
    path = folder / "rewards.yaml"
    path.write_text(f'schema_version: "1.0"\n{text}', encoding="utf-8")
    return path


def test_the_preset_is_right_and_is_shown(command: Command) -> None:
    ended = command("rubrics", "check", ROOT / "configs" / "rubric_pipeline.yaml")
    assert ended.code == 0
    rows = [line.split() for line in ended.output.splitlines()]
    assert rows[0][:4] == ["phase", "name", "rubric", "weight"]
    assert [row[:4] for row in rows[1:]] == [
        ["per_turn", "format", "builtin.regex", "0.2"],
        ["episode_end", "correct", "builtin.rule", "1"],
        ["episode_end", "concise", "builtin.length", "0.1"],
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("per_turn: [{name: a, rubric: builtin.regx}]", "did you mean 'builtin.regex'"),
        ("per_turn: [{name: a, rubric: builtin.regex, config: {pattern: '('}}]", "rubric a: pattern"),
        ("per_turn: [{name: a, rubric: builtin.regex, wieght: 1}]", "did you mean 'weight'"),
        ("per_turn: [{name: a, rubric: my.Rubric}]", "allowed_prefixes"),
        ("per_turn: [{name: a, rubric: nowhere.py:mine}]", "no such file"),
        ("per_turn: {name: a}", "per_turn must be a list"),
        ("per_turn: [", "no valid YAML"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_one_line(refused: Callable[..., str], tmp_path: Path, text: str, said: str) -> None:
    assert said in refused("rubrics", "check", written(tmp_path, text))


def test_a_file_of_another_version_or_none_at_all_is_refused(refused: Callable[..., str], tmp_path: Path) -> None:
    path = tmp_path / "rewards.yaml"
    path.write_text("schema_version: 2.0")
    assert "quote it" in refused("rubrics", "check", path)
    assert "can't be read" in refused("rubrics", "check", tmp_path / "none.yaml")


def test_dotted_paths_are_imported_where_their_prefix_is_allowed(command: Command, tmp_path: Path) -> None:
    path = written(tmp_path, "per_turn: [{name: a, rubric: tests.rubrics.live.check}]")
    assert command("rubrics", "check", path).code == 2
    assert command("rubrics", "check", path, "--allow", "tests.").code == 0


def test_get_prints_a_file_that_can_be_loaded(command: Command, served: tuple[LiveConfig, str], tmp_path: Path) -> None:
    live, url = served
    live.propose({"weights": {"task": 0.5}}, now=0.0)
    for flags, config in (((), live.active), (("--pending",), live.pending)):
        ended = command("rubrics", "get", url, *flags)
        assert ended.code == 0
        assert ended.output.startswith("# version")
        (tmp_path / "saved.yaml").write_text(ended.output)
        assert RewardConfig.load(tmp_path / "saved.yaml") == config


def test_set_changes_weights_and_switches(command: Command, served: tuple[LiveConfig, str]) -> None:
    live, url = served
    ended = command("rubrics", "set", url, "task=0.5", "style=-1e1", "--disable", "outcome", "--if-version", 1)
    assert (ended.code, "version 2 holds for episodes that begin from now on" in ended.output) == (0, True)
    assert weights_of(live.pending) == {"task": 0.5, "style": -10.0, "outcome": 1.0}
    assert entry(live.pending, "outcome")["enabled"] is False
    ended = command("rubrics", "set", url, "--enable", "outcome", "--now")
    assert "running episodes too" in ended.output
    assert entry(live.active, "outcome")["enabled"] is True
    assert {change.who for change in live.audit} == {"reward-loop rubrics"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "nothing to change"),
        (["task"], "NAME=WEIGHT"),
        (["task=heavy"], "NAME=WEIGHT"),
        (["=1"], "NAME=WEIGHT"),
        (["tsk=1"], "did you mean 'task'"),
        (["task=nan"], "finite number"),
        (["task=1", "--if-version", "7"], "version 7"),
        (["--enable", "task", "--disable", "task"], "not both"),
        (["task=1", "--token-env", "NOT_SET_ANYWHERE"], "NOT_SET_ANYWHERE"),
    ],
)
def test_what_is_wrong_with_a_change_is_said_in_one_line_and_nothing_is_changed(
    refused: Callable[..., str], served: tuple[LiveConfig, str], words: list[str], said: str
) -> None:
    live, url = served
    assert said in refused("rubrics", "set", url, *words)
    assert live.latest_version == 1


@pytest.mark.parametrize("words", [["get"], ["set", "task=1"], ["watch"]])
def test_a_pipeline_that_is_not_there_is_said_so(refused: Callable[..., str], words: list[str]) -> None:
    assert "http://127.0.0.1:1/config" in refused("rubrics", words[0], "127.0.0.1:1", *words[1:])


async def test_watch_says_each_change_until_it_is_interrupted(served: tuple[LiveConfig, str]) -> None:
    live, url = served
    arguments = ["-m", "reward_loop.cli.main", "rubrics", "watch", url]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, cwd=ROOT, env=os.environ, stdout=PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(60):
        assert b"version 1: task=1, style=1, outcome=1" in await process.stdout.readline()
        live.propose({"weights": {"task": 0.5}, "enabled": {"style": False}}, now=0.0)
        assert b"version 2: task 1 -> 0.5, style off" in await process.stdout.readline()
        live.propose({"config": {"style": {"threshold": 0.75}}}, now=0.0)
        assert b"version 3: style.threshold = 0.75" in await process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0

"""`reward-loop config show`: every setting, its value as it can be given, and where it came from."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from reward_loop.config_loading import explain_config, load_config
from tests.cli.conftest import Command

Refused = Callable[..., str]

LINE = re.compile(r"(?P<key>[\w.]+)=(?P<value>.*?) +# (?P<source>.+)")


def shown(command: Command, *words: object) -> dict[str, tuple[str, str]]:
    """(value, source) by key."""
    ended = command("config", "show", *words)
    assert ended.code == 0, ended.errors
    lines = [LINE.fullmatch(line) for line in ended.output.splitlines()]
    return {line["key"]: (line["value"], line["source"]) for line in lines if line is not None} | {
        "unreadable": (str(lines.count(None)), "")
    }


def test_every_line_is_a_setting_with_its_source(command: Command) -> None:
    values = shown(command)
    assert values.pop("unreadable") == ("0", "")
    assert list(values) == [value.key for value in explain_config()]
    assert {source for _, source in values.values()} == {"default"}
    assert values["reward_model.timeout_s"] == ("300.0", "default")


def test_what_is_shown_can_be_given_back(command: Command) -> None:
    settings = ["reward_model.on_error.value=-1", "custom_reward_function.reward_kwargs={a: 'x y', b: [1, 2], c: '3'}"]
    values = shown(command, *settings)
    values.pop("unreadable")
    assert load_config(overrides=[f"{key}={value}" for key, (value, _) in values.items()]) == load_config(overrides=settings)


def test_sources_are_named_with_the_spelling_that_was_used(command: Command, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("reward: {num_workers: 3}\nreward_model: {reward_manager: dapo}\n")
    values = shown(command, "-c", tmp_path / "run.yaml", "reward_model.timeout_s=5")
    assert values["reward_model.num_workers"] == ("3", "run.yaml (as reward.num_workers)")
    assert values["reward_model.reward_manager.name"] == ("dapo", "run.yaml (as reward_model.reward_manager)")
    assert values["reward_model.timeout_s"] == ("5.0", "override")


def test_keys_of_a_trainer_that_have_no_effect_are_flagged(command: Command) -> None:
    values = shown(command, "reward_model.model.use_shm=true")
    [(value, source)] = [found for key, found in values.items() if key.endswith("use_shm")]
    assert value == "true"
    assert source == "override: ignored, the reward loop has no use for it"


def test_wrong_settings_are_refused_as_they_are_for_a_run(refused: Refused) -> None:
    assert "did you mean" in refused("config", "show", "reward_model.timout_s=1")
    assert "must be a number" in refused("config", "show", "reward_model.timeout_s=soon")

"""Any section of settings, from files and the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field

from reward_loop.config_base import Config, Count
from reward_loop.config_section import load_section
from reward_loop.errors import ConfigError


class Inner(Config):
    steps: Count = 1
    rates: tuple[float, ...] = ()


class Outer(Config):
    name: str
    inner: Inner = Inner()
    other: Inner | None = None
    share: float = Field(0.5, gt=0)


def test_overrides_go_before_files_and_later_files_before_earlier_ones(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("name: one\ninner: {steps: 2, rates: [1.0]}\nshare: 0.1\n")
    (tmp_path / "two.yaml").write_text("name: two\ninner: {steps: 3}\n")
    loaded = load_section(Outer, tmp_path / "one.yaml", tmp_path / "two.yaml", overrides=["share=0.7"])
    assert loaded == Outer(name="two", inner=Inner(steps=3, rates=(1.0,)), share=0.7)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ([], r"^name: a value is missing; give one$"),
        (["name=a", "inner.step=3"], r"^inner\.step: there is no such setting; did you mean inner\.steps\?$"),
        (["name=a", "other.stps=3"], r"^other\.stps: there is no such setting; did you mean other\.steps\?$"),
        (["name=a", "inner.steps=0"], r"^inner\.steps=0: must be at least 1$"),
        (["name=a", "share=much"], r"^share='much': must be a number$"),
        (["name=a", "share=${nowhere}"], r"nowhere"),
        (["name=???"], r"name"),
        (["name=a", "share=0", "inner.rates=x"], r"^2 settings are wrong:\n  (inner\.rates='x': must be a list|share=0)"),
        (["share"], r"override 'share' can't be read"),
    ],
)
def test_what_is_wrong_is_said_with_its_value_and_what_to_do(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_section(Outer, overrides=overrides)

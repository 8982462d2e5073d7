"""Command-line options that several commands share, and what they are turned into; exit codes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from reward_loop.config import RewardLoopConfig
from reward_loop.config_loading import load_config
from reward_loop.errors import ConfigError

FAILED, WRONG, INTERRUPTED = 1, 2, 130
"""Exit codes, as the module `main` describes them."""

ConfigFiles = Annotated[
    list[Path] | None,
    typer.Option("--config", "-c", metavar="FILE", help="YAML file, also verl's own; may be given several times."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Argument(metavar="KEY=VALUE", help="Settings, such as reward_model.reward_manager=dapo", show_default=False),
]


def config_of(files: list[Path] | None, overrides: list[str] | None, *base: Mapping[str, Any]) -> RewardLoopConfig:
    """Return the configuration of these files and settings."""
    return load_config(*base, *(files or ()), overrides=overrides or ())


def refuse_paths(overrides: list[str] | None, remedy: str) -> None:
    """Raise ConfigError for a setting that has no `=`: most likely it is a file whose flag was forgotten."""
    if missing := next((text for text in overrides or () if "=" not in text), None):
        raise ConfigError(f"{missing!r} is no KEY=VALUE; {remedy}")

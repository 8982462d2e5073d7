"""`reward-loop config show`."""

from __future__ import annotations

import json

import typer
import yaml
from rich.console import Console
from rich.text import Text

from reward_loop.cli.options import ConfigFiles, Overrides
from reward_loop.config_loading import ConfigValue, explain_config

_MAX_WIDTH = 72

app = typer.Typer(help="The effective configuration.", no_args_is_help=True)


@app.callback()
def config() -> None:
    """The effective configuration."""


@app.command("show")
def show(overrides: Overrides = None, config: ConfigFiles = None) -> None:
    """Print every setting, its value and where it came from."""
    values = explain_config(*(config or ()), overrides=overrides or ())
    settings = [f"{value.key}={_shown(value)}" for value in values]
    width = min(max(map(len, settings)), _MAX_WIDTH)
    for setting, value in zip(settings, values, strict=True):
        Console().print(Text(f"{setting:<{width}}  # {_origin(value)}", style=_style(value)), soft_wrap=True)


def _shown(value: ConfigValue) -> str:
    if isinstance(value.value, str) and "\n" in value.value:
        return json.dumps(value.value)  # YAML too, and in one line
    text: str = yaml.safe_dump(value.value, default_flow_style=True, width=1_000_000)
    return text.removesuffix("\n...\n").strip()


def _origin(value: ConfigValue) -> str:
    return f"{value.source}: ignored, the reward loop has no use for it" if value.ignored else value.source


def _style(value: ConfigValue) -> str:
    if value.ignored:
        return "yellow"
    return "dim" if value.source == "default" else "bold"

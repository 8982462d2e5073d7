"""`reward-loop rubrics`: configurations of reward pipelines, in files and of pipelines that run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
import uvloop
import yaml
from rich.console import Console
from rich.table import Table
from rich.text import Text

from reward_loop.errors import ConfigError, ServerUnavailable
from reward_loop.rubrics.build import builder_of
from reward_loop.rubrics.catalogue import ALONE
from reward_loop.rubrics.config_client import AsyncRubricConfigClient
from reward_loop.rubrics.resources import Resources
from reward_loop.rubrics.reward_config import PHASES, RewardConfig, RubricEntry
from reward_loop.rubrics.update import changes_between

T = TypeVar("T")

_WAIT_S = 30.0
_AGAIN_S = 1.0
_MAX_SETTINGS = 60

Url = Annotated[
    str, typer.Argument(metavar="URL", help="The pipeline's address, such as http://127.0.0.1:8200.", show_default=False)
]
TokenEnv = Annotated[
    str | None, typer.Option("--token-env", metavar="NAME", help="Environment variable with the bearer token that it wants.")
]

app = typer.Typer(help="The rubrics of a reward pipeline: their file, and the weights of one that runs.", no_args_is_help=True)


@app.callback()
def rubrics() -> None:
    """The rubrics of a reward pipeline: their file, and the weights of one that runs."""


@app.command("check")
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline's YAML file.", show_default=False)],
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow", metavar="PREFIX", help="Prefix below which dotted paths are imported; may be given several times."
        ),
    ] = None,
) -> None:
    """Say whether a pipeline's file is right, and show its rubrics; their code is imported."""
    config = RewardConfig.load(file)
    for _, entry in config.entries():
        build = builder_of(entry, Resources(), allow or ())
        if entry.rubric in ALONE:
            build(entry.config)
    _print(_table(config))


@app.command("get")
def get(
    url: Url,
    pending: Annotated[bool, typer.Option("--pending", help="Show what holds from the next reset on.")] = False,
    token_env: TokenEnv = None,
) -> None:
    """Print the configuration of a running pipeline, as a file that `check` takes."""
    shown = _ask(url, token_env, lambda client: client.get(pending=pending))
    version = shown.pop("config_version")
    typer.echo(f"# version {version} of {url}\n{yaml.safe_dump(shown, sort_keys=False)}", nl=False)


@app.command("set")
def set_weights(
    url: Url,
    weights: Annotated[
        list[str] | None, typer.Argument(metavar="NAME=WEIGHT", help="Rubrics and their new weights.", show_default=False)
    ] = None,
    enable: Annotated[list[str] | None, typer.Option("--enable", metavar="NAME", help="Evaluate this rubric (again).")] = None,
    disable: Annotated[list[str] | None, typer.Option("--disable", metavar="NAME", help="Leave this rubric out.")] = None,
    now: Annotated[bool, typer.Option("--now", help="For running episodes too, from their next step on.")] = False,
    if_version: Annotated[
        int | None, typer.Option("--if-version", metavar="N", help="Only if nobody has changed anything since this version.")
    ] = None,
    token_env: TokenEnv = None,
) -> None:
    """Change weights of a running pipeline, all of them or none."""
    switches = {**dict.fromkeys(enable or (), True), **dict.fromkeys(disable or (), False)}
    if both := sorted(set(enable or ()) & set(disable or ())):
        raise ConfigError(f"{', '.join(both)}: --enable or --disable, not both")
    new = dict(_weight(text) for text in weights or ())
    if not new and not switches:
        raise ConfigError("there is nothing to change; give weights as NAME=WEIGHT, or --enable NAME, or --disable NAME")
    answer = _ask(
        url,
        token_env,
        lambda client: client.update(new, enabled=switches, apply="immediate" if now else None, if_version=if_version),
    )
    when = "running episodes too" if answer["applies"] == "immediate" else "episodes that begin from now on"
    _print(Text(f"version {answer['config_version']} holds for {when}"))
    _print(_table(RewardConfig.load(answer["config"])))


@app.command("watch")
def watch(url: Url, token_env: TokenEnv = None) -> None:
    """Print what is changed of a running pipeline, until Ctrl-C."""
    try:
        _ask(url, token_env, _watched)
    except KeyboardInterrupt:
        return  # the way to end it is no failure


async def _watched(client: AsyncRubricConfigClient) -> None:
    shown = await client.get(pending=True)
    lost = False
    _say(f"version {shown['config_version']}: {_weights(_config(shown))}")
    while True:
        try:
            news = await client.news(shown["config_version"], 0.0 if lost else _WAIT_S)
        except ServerUnavailable as error:
            if not lost:
                _say(f"lost: {error.message}")
            lost = True
            await asyncio.sleep(_AGAIN_S)
            continue
        if lost:
            _say("it is back")
        lost = False
        if news["config_version"] != shown["config_version"]:
            _say(f"version {news['config_version']}: {_changes(_config(shown), _config(news))}")
        shown = news


def _say(line: str) -> None:
    _print(Text(f"{datetime.now().astimezone():%H:%M:%S}  {line}"))


def _config(shown: dict[str, Any]) -> RewardConfig:
    return RewardConfig.load({key: value for key, value in shown.items() if key not in ("config_version", "immediate")})


def _weights(config: RewardConfig) -> str:
    return ", ".join(f"{entry.name}={entry.weight:g}{'' if entry.enabled else ' (off)'}" for _, entry in config.entries())


def _changes(old: RewardConfig, new: RewardConfig) -> str:
    if [entry.name for _, entry in old.entries()] != [entry.name for _, entry in new.entries()]:
        return f"another pipeline: {_weights(new)}"
    changes, before = changes_between(old, new), {entry.name: entry for _, entry in old.entries()}
    said = [f"{name} {before[name].weight:g} -> {weight:g}" for name, weight in changes.weights.items()]
    said += [f"{name} {'on' if enabled else 'off'}" for name, enabled in changes.enabled.items()]
    said += [f"{name}.{key} = {value!r}" for name, settings in changes.config.items() for key, value in settings.items()]
    return ", ".join(said) or "as before"


def _ask(url: str, token_env: str | None, question: Callable[[AsyncRubricConfigClient], Awaitable[T]]) -> T:
    client = AsyncRubricConfigClient(url, token=None if token_env is None else _token(token_env), author="reward-loop rubrics")

    async def asked() -> T:
        return await question(client)

    return uvloop.run(asked())


def _token(name: str) -> str:
    if not (token := os.environ.get(name)):
        raise ConfigError(f"--token-env: the environment variable {name} is not set; put the pipeline's token into it")
    return token


def _weight(text: str) -> tuple[str, float]:
    name, separator, number = text.rpartition("=")
    try:
        return name, float(number if separator and name else "")
    except ValueError:
        raise ConfigError(f"{text!r} is no NAME=WEIGHT; write the rubric's name and a number, such as style=0.5") from None


def _table(config: RewardConfig) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("phase", "name", "rubric", "weight", "on error", "time-out", "settings"):
        table.add_column(heading, justify="right" if heading == "weight" else "left", overflow="fold")
    for phase in PHASES:
        entries: Sequence[RubricEntry] = getattr(config, phase)
        for entry in entries:
            table.add_row(*map(Text, _row(phase, entry)), style="" if entry.enabled else "dim")
    return table


def _row(phase: str, entry: RubricEntry) -> list[str]:
    settings = yaml.safe_dump(dict(entry.config), default_flow_style=True, width=1_000_000).strip() if entry.config else ""
    return [
        phase,
        entry.name,
        entry.rubric,
        f"{entry.weight:g}{'' if entry.enabled else ' (off)'}",
        str(entry.on_error) if isinstance(entry.on_error, str) else f"value {entry.on_error['value']:g}",
        "" if entry.timeout_s is None else f"{entry.timeout_s:g} s",
        settings if len(settings) <= _MAX_SETTINGS else f"{settings[:_MAX_SETTINGS]}…",
    ]


def _print(what: Table | Text) -> None:
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, 160)
    console.print(what, soft_wrap=isinstance(what, Text))

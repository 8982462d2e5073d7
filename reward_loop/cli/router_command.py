"""`reward-loop router`: the router in front of servers that somebody else runs."""

from __future__ import annotations

from typing import Annotated

import typer
import uvloop
from rich.console import Console

from reward_loop.cli.options import refuse_paths
from reward_loop.config_loading import load_config
from reward_loop.errors import ConfigError
from reward_loop.router.configured import router_settings
from reward_loop.router.process import RouterProcess
from reward_loop.router.settings import RouterSettings

_SECTION = "reward_model.router."

Servers = list[tuple[str, str]]
"""Model and URL of each."""


def router(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE", help="Settings of reward_model.router, such as policy=round_robin", show_default=False
        ),
    ] = None,
    replica: Annotated[
        list[str] | None,
        typer.Option("--replica", metavar="[MODEL=]URL", help="A server, such as http://10.0.0.7:8000; once for each."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="Model of the servers that are given without one.")
    ] = None,
) -> None:
    """Put one address in front of reward servers that you run, until Ctrl-C."""
    refuse_paths(overrides, "give servers with --replica URL, and settings of reward_model.router as policy=round_robin")
    servers = [_server(text, model) for text in replica or ()]
    if not servers:
        raise ConfigError("a router needs servers: give each with --replica URL, and the name of their model with --model")
    settings = [text if text.startswith(("reward_model.", "reward.")) else _SECTION + text for text in overrides or ()]
    uvloop.run(_serve(router_settings(load_config(overrides=settings).reward_model.router, model), servers))


def _server(text: str, model: str | None) -> tuple[str, str]:
    named, separator, url = text.rpartition("=")
    if separator:
        return named, url
    if model is None:
        raise ConfigError(f"--replica {text}: which model is it? Add --model NAME, or write --replica NAME={text}")
    return model, text


async def _serve(settings: RouterSettings, servers: Servers) -> None:
    async with RouterProcess(settings) as process:
        for model, url in servers:
            await process.add(model, url)
        console = Console(highlight=False)
        console.print(f"[bold]http://{process.address}[/] is in front of {len(servers)} servers; Ctrl-C ends it", soft_wrap=True)
        console.print(f"[dim]reward-loop top {process.address}[/] shows what they do", soft_wrap=True)
        await process.wait()

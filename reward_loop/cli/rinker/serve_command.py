"""`rinker serve`."""

from __future__ import annotations

from rich.console import Console

from reward_loop.cli.options import ConfigFiles, Overrides, refuse_paths
from reward_loop.config_section import load_section
from reward_loop.rinker.backend import Backend


def serve(config: ConfigFiles = None, overrides: Overrides = None) -> None:
    """Serve the training API by HTTP, also to the official Tinker client, until Ctrl-C."""
    from reward_loop.rinker.runtime.build import training_service
    from reward_loop.rinker.serve_config import ServeConfig
    from reward_loop.rinker.server.serve import run_server

    refuse_paths(overrides, "give a configuration with -c FILE, and settings as server.port=8765 base_models=[path/to/model]")
    settings = load_section(ServeConfig, *(config or ()), overrides=overrides or ())
    console = Console(highlight=False)

    def make() -> Backend:
        return training_service(settings.checkpoints, settings.runtime, settings.engine, limits=settings.limits)

    def announce(url: str) -> None:
        offered = ", ".join(settings.base_models) or "any model that can be loaded"
        console.print(f"[bold]{url}[/] serves {offered}; Ctrl-C ends it", soft_wrap=True)
        key = "TINKER_API_KEY=tml-…" if settings.server.api_key else "TINKER_API_KEY=tml-any"
        console.print(f"[dim]TINKER_BASE_URL={url} {key}[/] points clients to it", soft_wrap=True)

    run_server(make, settings.server, announce)

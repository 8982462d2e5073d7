"""`rinker train sl|rl|rm`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import typer
from rich.console import Console

from reward_loop.cli.options import ConfigFiles, Overrides, refuse_paths
from reward_loop.cli.rinker.run_view import RunView
from reward_loop.config_section import load_section
from reward_loop.errors import ConfigError
from reward_loop.rinker.loops.config import LoopConfig
from reward_loop.rinker.loops.observer import RunResult
from reward_loop.rinker.report.page import write_run_report

C = TypeVar("C", bound=LoopConfig)

app = typer.Typer(no_args_is_help=True, help="Train a model; a run that is in log_path already goes on.")


@app.command("rl")
def rl(config: ConfigFiles = None, overrides: Overrides = None) -> None:
    """Reinforcement learning: sample, score, learn."""
    from reward_loop.rinker.rl.config import RLConfig
    from reward_loop.rinker.rl.train import train_rl

    _run(RLConfig, config, overrides, lambda settings, view: train_rl(settings, observer=view))


@app.command("sl")
def sl(config: ConfigFiles = None, overrides: Overrides = None) -> None:
    """Supervised learning on conversations."""
    from reward_loop.rinker.sl.config import SLConfig
    from reward_loop.rinker.sl.train import train_sl

    _run(SLConfig, config, overrides, lambda settings, view: train_sl(settings, observer=view))


@app.command("rm")
def rm(config: ConfigFiles = None, overrides: Overrides = None) -> None:
    """A reward model, on preferences."""
    from reward_loop.rinker.rm.config import RMConfig
    from reward_loop.rinker.rm.train import train_rm

    _run(RMConfig, config, overrides, lambda settings, view: train_rm(settings, observer=view))


def _run(kind: type[C], files: ConfigFiles, overrides: Overrides, train: Callable[[C, RunView], RunResult]) -> None:
    refuse_paths(overrides, "give configuration files with -c FILE, and settings as batch_size=16")
    if not files and not overrides:
        raise ConfigError("a run needs its settings: give a file with -c FILE, or settings such as log_path=runs/first")
    settings = load_section(kind, *(files or ()), overrides=overrides or ())
    console = Console(stderr=True, highlight=False)
    with RunView(console) as view:
        result = train(settings, view)
    page = settings.log_path / "report.html"
    write_run_report(settings.log_path, page)
    saved = f"; weights: {result.checkpoint.state_path}" if result.checkpoint else ""
    console.print(f"{result.steps} steps -> {settings.log_path}{saved}", soft_wrap=True)
    console.print(f"report: {page}", soft_wrap=True)

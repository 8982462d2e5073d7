"""`reward-loop`: the commands and their exit codes.

0: done, and every sample has its reward (or was unscorable); 1: done, but samples failed, a comparison found changes, or
doctor a need that is not met; 2: the command, the configuration or the input is wrong; 130: interrupted (Ctrl-C, SIGTERM), and
`--resume` continues.
"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Sequence
from types import FrameType

import typer
from rich.console import Console
from rich.markup import escape

from reward_loop.cli import doctor_command, top_command
from reward_loop.cli.options import INTERRUPTED, WRONG
from reward_loop.errors import RewardLoopError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (default: that of this process); errors are for people: what, where, how to fix."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    logging.getLogger("reward_loop").setLevel(logging.INFO)
    signal.signal(signal.SIGTERM, _terminate)
    words = sys.argv[1:] if arguments is None else arguments
    try:
        _app(words)(words, prog_name="reward-loop")
    except RewardLoopError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename or 'a file'}: {error.strerror or error}; with that put right, --resume continues a begun run")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _app(words: Sequence[str]) -> typer.Typer:
    """Return the commands that these words may mean."""
    app = typer.Typer(
        name="reward-loop",
        help="Rewards for RL post-training: per sample, asynchronous, never a silent zero.",
        epilog="Exit codes: 0 done; 1 done, but samples failed, a comparison found changes or doctor a need that is not met; "
        "2 the command, the configuration or the input is wrong; 130 interrupted.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )
    app.callback()(lambda: None)
    if words[:1] not in (["doctor"], ["top"]):  # which must run where the libraries that the others load are missing
        from reward_loop.cli import config_command, report_command, rescore_command, router_command, rubric_command, score_command

        app.command("score")(score_command.score)
        app.command("report")(report_command.report)
        app.command("rescore")(rescore_command.rescore)
        app.command("router")(router_command.router)
        app.add_typer(config_command.app, name="config")
        app.add_typer(rubric_command.app, name="rubrics")
    app.command("doctor")(doctor_command.doctor)
    app.command("top")(top_command.top)
    return app


def _fail(message: str) -> None:
    Console(stderr=True).print(f"[bold red]error:[/] {escape(message)}", soft_wrap=True, highlight=False)
    sys.exit(WRONG)


def _terminate(signum: int, frame: FrameType | None) -> None:
    """End as after Ctrl-C, also where a shell has started this in the background, with Ctrl-C ignored."""
    interrupt = signal.getsignal(signal.SIGINT)
    (interrupt if callable(interrupt) else signal.default_int_handler)(signal.SIGINT, frame)


if __name__ == "__main__":
    main()

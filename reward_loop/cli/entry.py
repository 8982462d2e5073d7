"""Running a command line of typer's: logging, signals, and errors as people read them."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType

import typer
from rich.console import Console
from rich.markup import escape

from reward_loop.cli.options import INTERRUPTED, WRONG
from reward_loop.errors import RewardLoopError


def run_app(
    make_app: Callable[[Sequence[str]], typer.Typer], name: str, arguments: Sequence[str] | None, *, after_repair: str
) -> None:
    """Run these words (default: those of this process) as the app that `make_app` returns for them; exits where it fails.

    `after_repair` says how to go on once a file or a disk that was at fault is in order.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    logging.getLogger("reward_loop").setLevel(logging.INFO)
    signal.signal(signal.SIGTERM, _terminate)
    words = sys.argv[1:] if arguments is None else arguments
    try:
        make_app(words)(words, prog_name=name)
    except RewardLoopError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename or 'a file'}: {error.strerror or error}; {after_repair}")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _fail(message: str) -> None:
    Console(stderr=True).print(f"[bold red]error:[/] {escape(message)}", soft_wrap=True, highlight=False)
    sys.exit(WRONG)


def _terminate(signum: int, frame: FrameType | None) -> None:
    """End as after Ctrl-C, also where a shell has started this in the background, with Ctrl-C ignored."""
    interrupt = signal.getsignal(signal.SIGINT)
    (interrupt if callable(interrupt) else signal.default_int_handler)(signal.SIGINT, frame)

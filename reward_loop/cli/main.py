"""`reward-loop`: the commands and their exit codes.

0: done, and every sample has its reward (or was unscorable); 1: done, but samples failed, a comparison found changes, or
doctor a need that is not met; 2: the command, the configuration or the input is wrong; 130: interrupted (Ctrl-C, SIGTERM), and
`--resume` continues.
"""

from __future__ import annotations

from collections.abc import Sequence

import typer

from reward_loop.cli import doctor_command, top_command
from reward_loop.cli.entry import run_app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (default: that of this process); errors are for people: what, where, how to fix."""
    run_app(_app, "reward-loop", arguments, after_repair="with that put right, --resume continues a begun run")


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


if __name__ == "__main__":
    main()

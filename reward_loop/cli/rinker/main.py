"""`rinker`: train, serve, evaluate and export models by the training API.

Exit codes: 0 done; 2 the command, the configuration or the data is wrong, or the training failed; 130 interrupted (Ctrl-C,
SIGTERM), and the same command goes on from the last checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence

import typer

from reward_loop.cli.entry import run_app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (default: that of this process)."""
    run_app(_app, "rinker", arguments, after_repair="with that put right, the same command goes on from the last checkpoint")


def _app(words: Sequence[str]) -> typer.Typer:
    del words
    from reward_loop.cli.rinker import eval_command, export_command, report_command, serve_command, train_command

    app = typer.Typer(
        name="rinker",
        help="Train language and reward models by an API in the names of the Tinker SDK.",
        epilog="Exit codes: 0 done; 2 the command, the configuration or the data is wrong, or the training failed; "
        "130 interrupted: the same command goes on.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
    )
    app.add_typer(train_command.app, name="train")
    app.command("serve")(serve_command.serve)
    app.command("eval")(eval_command.evaluate)
    app.command("export")(export_command.export)
    app.command("report")(report_command.report)
    return app


if __name__ == "__main__":
    main()

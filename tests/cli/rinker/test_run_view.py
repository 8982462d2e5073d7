"""What is seen of a run while it goes on."""

from __future__ import annotations

import io

from rich.console import Console

from reward_loop.cli.rinker.run_view import RunView, chosen
from reward_loop.rinker.loops.observer import CheckpointRecord

METRICS = {"env/all/total_turns": 8.0, "zebra": 1.0, "time/total": 2.5, "reward/total": 0.125, "optim/kl_sample_train_v1": -0.001}


def seen(*, terminal: bool, steps: int, every_s: float) -> str:
    clock = iter(range(10_000))
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=100)
    with RunView(console, clock=lambda: next(clock) * every_s) as view:
        view.on_start("rl", 0, steps)
        for step in range(steps):
            view.on_step(step, METRICS)
        view.on_checkpoint(CheckpointRecord("000003", 3, "tinker://m/weights/000003"))
        view.on_step(steps - 1, METRICS)
    return out.getvalue()


def test_what_matters_comes_first() -> None:
    assert list(chosen(METRICS)) == ["reward/total", "optim/kl_sample_train_v1", "time/total", "zebra"]


def test_on_what_is_no_terminal_a_line_comes_every_ten_seconds_and_one_at_the_end() -> None:
    lines = seen(terminal=False, steps=30, every_s=1.0).splitlines()
    assert lines[0].startswith("step 1/30: reward/total 0.125, optim/kl_sample_train_v1")
    assert [line.split(":")[0] for line in lines][-1] == "step 30/30"
    assert 3 <= len(lines) <= 8


def test_a_terminal_shows_a_bar_the_figures_and_what_was_saved() -> None:
    shown = seen(terminal=True, steps=3, every_s=1.0)
    for word in ("rl", "3/3", "reward/total", "0.125", "zebra", "tinker://m/weights/000003"):
        assert word in shown

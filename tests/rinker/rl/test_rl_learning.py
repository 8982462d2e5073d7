"""A model with random weights learns to copy digits by its rewards alone."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import fmean

import pytest

from reward_loop.rinker.loops.journal import Journal
from reward_loop.rinker.rl.train import train_rl
from tests.rinker.rl.copy_task import CopyBuilder, CopyDataset, copy_config, write_model
from tests.rinker.rl.runs import Watching, every_group_once, run, trained_groups

ROOT = Path(__file__).parents[3]


def learnt(tmp_path: Path, seed: int, steps: int, groups: int, learning_rate: float) -> Watching:
    watching = Watching()
    base_model, adam = write_model(tmp_path / "model", seed), {"learning_rate": learning_rate}
    config = copy_config(tmp_path / "run", base_model, batch_size=groups, seed=seed, adam=adam)
    data = CopyBuilder(CopyDataset(steps, groups, 8, seed=seed), CopyDataset(1, 64, 1, seed=99))
    train_rl(config, data=data, observer=watching)
    return watching


def test_the_reward_rises_within_a_few_steps(tmp_path: Path) -> None:
    rewards = learnt(tmp_path, seed=0, steps=20, groups=16, learning_rate=2e-3).series("reward/total")
    assert fmean(rewards[:5]) < 0.12
    assert fmean(rewards[-5:]) > fmean(rewards[:5]) + 0.03


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_task_is_learnt_from_random_weights(tmp_path: Path, seed: int) -> None:
    watching = learnt(tmp_path, seed, steps=180, groups=32, learning_rate=1e-3)
    rewards = watching.series("reward/total")
    assert fmean(rewards[:10]) < 0.15
    assert fmean(rewards[-10:]) > 0.8
    windows = [fmean(rewards[begin : begin + 30]) for begin in range(0, 180, 30)]
    assert windows == sorted(windows)
    assert watching.metrics[-1]["test/reward/total"] > 0.8


KILLED = """
import asyncio, sys
from pathlib import Path
from tests.rinker.rl.runs import run
asyncio.run(run(Path(sys.argv[1]), sys.argv[2], steps=200, save_every=1))
"""


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_from_its_last_checkpoint(tmp_path: Path, copy_model: str) -> None:
    log = tmp_path / "run"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(log), copy_model], cwd=ROOT, stderr=subprocess.DEVNULL)
    checkpoints = Journal(log / "checkpoints.jsonl")
    deadline = time.monotonic() + 120
    while len(checkpoints.read()) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    before = len(checkpoints.read())
    assert 3 <= before < 190
    rest = asyncio.run(run(log, copy_model, steps=200, save_every=1, max_steps=before + 3))
    assert rest.events[0] == f"rl {before}/{before + 3}"
    assert [line["step"] for line in Journal(log / "metrics.jsonl").read()] == list(range(before + 3))
    assert trained_groups(log) == every_group_once(before + 3)

"""Saves checkpoints until it is killed: `python -m tests.rinker.engine.killed MODEL DIRECTORY`."""

from __future__ import annotations

import sys
from pathlib import Path

from reward_loop.rinker.engine.engine import Engine
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.types import ModelSpec

if __name__ == "__main__":
    engine = Engine(ModelSpec(sys.argv[1]), EngineSettings(device="cpu"))
    for number in range(1_000_000):
        engine.step = number
        engine.save(Path(sys.argv[2]) / f"step-{number}", optimizer=True)
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()

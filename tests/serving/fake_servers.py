"""Servers without a model: what starts the processes of `fake_engine`."""

from __future__ import annotations

import sys
from pathlib import Path

from reward_loop.serving.command import Command
from reward_loop.serving.server import BuildCommand
from reward_loop.serving.spec import ServerSpec

_PROGRAM = Path(__file__).with_name("fake_engine.py")


def fake_command(*modes: str) -> BuildCommand:
    """Return what builds the command of such a process."""

    def build(_: ServerSpec, port: int, run_dir: str, update_dir: str) -> Command:
        return Command((sys.executable, str(_PROGRAM), str(port), *modes), {"RUN_DIR": run_dir, "UPDATE_DIR": update_dir})

    return build

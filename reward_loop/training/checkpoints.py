"""Checkpoints of a training: the model as transformers or PEFT loads it, and beside it what the training needs to go on.

Invariants: a checkpoint is in place whole or not at all, whenever the process is killed; an older one goes only once a newer is
there; a training goes on only where everything that decides its result is as it was.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import nn

from reward_loop.errors import TrainingError

State: TypeAlias = dict[str, Any]
"""Tensors and plain values, nothing that would run code when it is loaded."""

_STATE_FILE = "training.pt"
_NAME = re.compile(r"step-(\d+)")
_UNFINISHED = ".unfinished-"


class Checkpoints:
    """The checkpoints below `directory`: folders `step-00000100`, of which the newest `keep` stay."""

    def __init__(self, directory: str | Path, keep: int = 2) -> None:
        self.directory = Path(directory)
        self._keep = keep

    def write(self, step: int, model: nn.Module, state: State) -> Path:
        """Keep the model and the state after `step` steps; return the folder. Raises TrainingError where it can't be written."""
        target = self.directory / f"step-{step:08d}"
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._tidy()
            folder = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=self.directory))
            folder.chmod(0o755)  # as mkdir makes them, not as mkdtemp does
            saved: Any = model
            saved.save_pretrained(folder)
            torch.save(state, folder / _STATE_FILE)
            _flush(folder)
            if target.exists():  # of a run that was begun anew
                shutil.rmtree(target)
            folder.rename(target)
            _flush_entry(self.directory)
        except OSError as error:
            raise TrainingError(f"the checkpoint of step {step} can't be written to {self.directory}: {error}") from error
        for old in self._all()[: -self._keep]:
            shutil.rmtree(old, ignore_errors=True)
        return target

    def latest(self) -> Path | None:
        """Return the folder of the newest checkpoint; None if there is none."""
        return next(reversed(self._all()), None)

    def _all(self) -> list[Path]:
        found = [path for path in self.directory.glob("step-*") if _NAME.fullmatch(path.name)]
        return sorted(found, key=lambda path: int(path.name.removeprefix("step-")))

    def _tidy(self) -> None:
        for left in self.directory.glob(f"{_UNFINISHED}*"):  # by a process that was killed
            shutil.rmtree(left, ignore_errors=True)


def read_state(folder: Path) -> State:
    """Return what the training needs to go on; TrainingError if it can't be read."""
    try:
        state: State = torch.load(folder / _STATE_FILE, map_location="cpu", weights_only=True)
    except Exception as error:  # a file that was cut or changed can raise anything; no code of it has run
        raise TrainingError(f"{folder / _STATE_FILE} can't be read: {error}; remove {folder} to go on without it") from error
    return state


def check_same_run(folder: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raise TrainingError that names what differs between the run of a checkpoint and this one."""
    changed = [
        f"{key} was {before.get(key)!r} and is {now.get(key)!r}" for key in {**before, **now} if before.get(key) != now.get(key)
    ]
    if changed:
        raise TrainingError(
            f"{folder} is of another training: {'; '.join(changed)}. Set it back, or use another directory (or resume=False)"
        )


def _flush(folder: Path) -> None:
    """Have the files on the disk before their folder gets the name by which it counts."""
    for path in folder.rglob("*"):
        _flush_entry(path)
    _flush_entry(folder)


def _flush_entry(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""Where a server of this machine writes: its log, which stays, and the updates of its weights, which go with it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from reward_loop.serving.spec import ServerSpec

_SHOWN = 60
"""Characters of a server's name in that of a directory: a model may have a path for a name."""


def log_file(spec: ServerSpec) -> Path:
    """Return the file that takes what the server prints; its directory is made."""
    if spec.log_dir is None:
        return Path(tempfile.mkdtemp(prefix="reward-loop-logs-")) / f"{spec.label}.log"
    directory = Path(spec.log_dir)
    directory.mkdir(parents=True, exist_ok=True)
    return directory / f"{spec.label}.log"


def new_update_dir(spec: ServerSpec) -> str:
    """Make a directory for the updates of the server's weights, below `spec.update_dir`."""
    if spec.update_dir is not None:
        Path(spec.update_dir).mkdir(parents=True, exist_ok=True)
    return tempfile.mkdtemp(prefix=f"reward-loop-updates-{spec.label[-_SHOWN:]}-", dir=spec.update_dir)

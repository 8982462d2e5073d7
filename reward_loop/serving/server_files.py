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


def directory_of_updates(spec: ServerSpec, owner: str | None = None) -> str:
    """Make the directory for the updates of the server's weights, below `spec.update_dir`: a new one, or that of `owner`."""
    above = Path(spec.update_dir or tempfile.gettempdir())
    above.mkdir(parents=True, exist_ok=True)
    name = f"reward-loop-updates-{spec.label[-_SHOWN:]}-"
    if owner is None:
        return tempfile.mkdtemp(prefix=name, dir=above)
    own = above / f"{name}{owner}"
    own.mkdir(mode=0o700, exist_ok=True)
    return str(own)

"""Where on this machine a run's weights lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reward_loop.errors import ConfigError
from reward_loop.rinker.loops.run_log import CONFIG
from reward_loop.rinker.service.checkpoint_path import CheckpointPath
from reward_loop.rinker.service.checkpoint_store import CheckpointStore

WEIGHTS = "weights"
"""Folder of a run whose service is in its own process, unless `service.checkpoints` says another."""


def weights_folder(run: Path, path: str) -> Path:
    """Return the folder of what the run in this directory saved as `path`. Raises ConfigError where a server has it."""
    try:
        settings: dict[str, Any] = json.loads((run / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{run / CONFIG} can't be read ({error}); give the directory of one checkpoint") from error
    service = settings.get("service") or {}
    if service.get("base_url") is not None:
        raise ConfigError(f"{path} lies with the service at {service['base_url']}; export it there")
    folder, _ = CheckpointStore(service.get("checkpoints") or run / WEIGHTS).find(CheckpointPath.parse(path))
    return folder

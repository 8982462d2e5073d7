"""What a backend is, and how one is opened by its name."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any, Literal, Protocol

from reward_loop.errors import ConfigError
from reward_loop.rubrics.logger.record import Record

BackendName = Literal["tensorboard", "wandb", "mlflow", "jsonl", "memory"]

_CLASSES: Mapping[str, str] = {
    "tensorboard": "TensorboardBackend",
    "wandb": "WandbBackend",
    "mlflow": "MlflowBackend",
    "jsonl": "JsonlBackend",
    "memory": "MemoryBackend",
}


class Backend(Protocol):
    """Where records go. One thread calls it, in ascending order of steps; what it raises is logged and costs that record only."""

    def write(self, record: Record) -> None:
        """Write one record."""

    def flush(self) -> None:
        """Make what was written readable by others."""

    def close(self) -> None:
        """Flush and let go of everything; nothing is called after it."""


def open_backend(name: str, options: Mapping[str, Any]) -> Backend:
    """Return the backend of this name. Raises ConfigError for an unknown one, for options it lacks, and for a missing package."""
    if name not in _CLASSES:
        raise ConfigError(f"backend={name!r} is none of {', '.join(_CLASSES)}")
    try:
        module = importlib.import_module(f"reward_loop.rubrics.logger.{name}_backend")
    except ModuleNotFoundError as error:
        raise ConfigError(f"backend={name!r} needs {error.name}: pip install 'reward-loop[{name}]'") from error
    make = getattr(module, _CLASSES[name])
    known = inspect.signature(make).parameters
    if unknown := sorted(set(options) - set(known)):
        raise ConfigError(f"backend={name!r} has no option {', '.join(unknown)}; it has {', '.join(known) or 'none'}")
    backend: Backend = make(**options)
    return backend

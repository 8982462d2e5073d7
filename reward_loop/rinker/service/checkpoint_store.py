"""What was saved, as folders of one directory: `MODEL/weights/NAME` and `MODEL/sampler_weights/NAME`.

Invariants: a checkpoint is in place whole or not at all; one that is overwritten stays until the new one is there; beside the
files lies `rinker.json`, which says what they are.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.engine.checkpoint_files import flush
from reward_loop.rinker.service.checkpoint_path import CheckpointPath, checked_name
from reward_loop.rinker.types import LoraConfig, ModelSpec

_ABOUT = "rinker.json"
_UNFINISHED = ".unfinished-"


@dataclass(frozen=True, slots=True)
class Saved:
    """What a checkpoint is of, and when it was made."""

    spec: ModelSpec
    version: int
    """Optimiser steps that the weights have behind them."""
    time: str = field(default_factory=lambda: datetime.now(UTC).isoformat())
    ttl_seconds: int | None = None
    """Kept for the reader; nothing is removed by it."""
    user_metadata: Mapping[str, str] | None = None


class CheckpointStore:
    """Checkpoints below `directory`, which is made when the first is written."""

    def __init__(self, directory: str | Path) -> None:
        self.directory = Path(directory)

    @asynccontextmanager
    async def writing(self, path: CheckpointPath, saved: Saved, *, overwrite: bool) -> AsyncGenerator[Path]:
        """Give the folder to write to, which becomes the checkpoint unless the block raises.

        Raises RequestFailedError: "user" where the name is taken and `overwrite` is not set, "server" where it can't be written.
        """
        target = self._folder(path)
        if target.exists() and not overwrite:
            raise RequestFailedError(f"{path} exists; choose another name, or set overwrite=True", category="user")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=target.parent))
        except OSError as error:
            raise RequestFailedError(f"{path} can't be written: {error}", category="server") from error
        try:
            written = folder / "checkpoint"
            yield written
            await asyncio.to_thread(_put, written, target, saved)
        except OSError as error:
            raise RequestFailedError(f"{path} can't be written: {error}", category="server") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def find(self, path: CheckpointPath) -> tuple[Path, Saved]:
        """Return the folder of a checkpoint and what it is of. Raises RequestFailedError("user") where there is none."""
        folder = self._folder(path)
        if not folder.is_dir():
            raise RequestFailedError(f"there is no checkpoint {path}", category="user")
        return folder, _read_about(folder / _ABOUT)

    def all(self, model_id: str | None = None) -> Iterator[tuple[CheckpointPath, Saved]]:
        """List the checkpoints of one model, or of all, each model's by name."""
        models = self._models() if model_id is None else [checked_name(model_id, "model id")]
        for model in models:
            for about in sorted((self.directory / model).glob(f"*weights/[!.]*/{_ABOUT}")):
                folder = about.parent
                yield CheckpointPath.parse(f"tinker://{model}/{folder.parent.name}/{folder.name}"), _read_about(about)

    def delete(self, path: CheckpointPath) -> None:
        """Remove a checkpoint. Raises RequestFailedError("user") where there is none."""
        folder, _ = self.find(path)
        shutil.rmtree(folder)

    def _folder(self, path: CheckpointPath) -> Path:
        return self.directory / path.model_id / path.folder / path.name

    def _models(self) -> list[str]:
        return sorted(folder.name for folder in self.directory.iterdir()) if self.directory.is_dir() else []


def _put(written: Path, target: Path, saved: Saved) -> None:
    """Give a folder its name, once all that is in it is on the disk."""
    (written / _ABOUT).write_text(json.dumps(asdict(saved), indent=2))
    flush(written)
    if target.exists():
        target.rename(written.parent / "replaced")
    written.rename(target)
    flush(target.parent, below=False)


def _read_about(path: Path) -> Saved:
    try:
        about: dict[str, Any] = json.loads(path.read_text())
        spec = about.pop("spec")
        lora = spec.pop("lora")
        return Saved(ModelSpec(**spec, lora=None if lora is None else LoraConfig(**lora)), **about)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RequestFailedError(
            f"{path} can't be read, so {path.parent.name} is no checkpoint: {error}", category="server"
        ) from error

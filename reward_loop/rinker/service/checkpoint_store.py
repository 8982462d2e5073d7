"""What was saved, as folders of one directory: `MODEL/weights/NAME` and `MODEL/sampler_weights/NAME`.

Invariants: a checkpoint is in place whole or not at all; one that is overwritten stays until the new one is there (see
`unfinished.take_place`); beside the files lies `rinker.json`, which says what they are.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.engine.checkpoint_files import flush
from reward_loop.rinker.engine.identity import spec_as_json, spec_from_json
from reward_loop.rinker.engine.unfinished import sweep, take_place, unfinished_prefix
from reward_loop.rinker.service.checkpoint_path import CheckpointPath, checked_name
from reward_loop.rinker.types import ModelSpec

_ABOUT = "rinker.json"


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
        """Give the folder to write to, which becomes the checkpoint unless the block raises; once it does, nothing cancels that.

        Raises RequestFailedError: "user" where the name is taken and `overwrite` is not set, "server" where it can't be written.
        """
        target = self._folder(path)
        if target.exists() and not overwrite:
            raise RequestFailedError(f"{path} exists; choose another name, or set overwrite=True", category="user")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            await asyncio.to_thread(self._sweep)
            folder = Path(tempfile.mkdtemp(prefix=unfinished_prefix(), dir=target.parent))
        except OSError as error:
            raise RequestFailedError(f"{path} can't be written: {error}", category="server") from error
        try:
            written = folder / "checkpoint"
            yield written
            await _to_its_end(lambda: _put(written, target, saved))
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

    def _sweep(self) -> None:
        """Remove what killed processes left, of every model: their models have other ids now, and nobody writes there again."""
        for parent in self.directory.glob("*/*weights"):
            sweep(parent)

    def _folder(self, path: CheckpointPath) -> Path:
        return self.directory / path.model_id / path.folder / path.name

    def _models(self) -> list[str]:
        return sorted(folder.name for folder in self.directory.iterdir()) if self.directory.is_dir() else []


def _put(written: Path, target: Path, saved: Saved) -> None:
    """Give a folder its name, once all that is in it is on the disk."""
    (written / _ABOUT).write_text(json.dumps(asdict(saved) | {"spec": spec_as_json(saved.spec)}, indent=2))
    flush(written)
    take_place(written, target)


async def _to_its_end(work: Callable[[], None]) -> None:
    """Do it in a thread, and stay until it is done: cancelling does not end the thread, and the caller removes its files."""
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        await asyncio.shield(running)
    finally:
        while not running.done():
            with suppress(asyncio.CancelledError):  # the first one goes on from here
                await asyncio.wait([running])


def _read_about(path: Path) -> Saved:
    try:
        about: dict[str, Any] = dict(json.loads(path.read_text()))
        return Saved(spec_from_json(about.pop("spec")), **about)
    except (OSError, ValueError, KeyError, TypeError, RequestFailedError) as error:
        raise RequestFailedError(
            f"{path} can't be read, so {path.parent.name} is no checkpoint: {error}", category="server"
        ) from error

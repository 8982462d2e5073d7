"""Publishing to vLLM servers without the reward loop's plugin, which read a whole checkpoint from a directory.

All that it takes is VLLM_SERVER_DEV_MODE=1 at the server. Such a server checks nothing and dies of bad input, so everything is
checked here; it can't stage, so it pauses while it reads.

Invariants: a server that was paused is resumed, whatever happens; where one can't read the new checkpoint, all read the old one.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from reward_loop.errors import WeightSyncError
from reward_loop.sync.checkpoint import Checkpoint
from reward_loop.sync.committing import to_the_end
from reward_loop.sync.replicas import Replicas
from reward_loop.sync.report import PublishReport, ReplicaReport
from reward_loop.sync.server_call import Answer
from reward_loop.sync.shared_directory import shared_directory
from reward_loop.sync.side_by_side import answers_of
from reward_loop.sync.training_mode import RewardModelTrainingMode

logger = logging.getLogger(__name__)

_QUICK_S = 30.0


@dataclass(frozen=True, slots=True)
class ReloadPlane:
    """One update of servers of stock vLLM through checkpoints in `directory` (None: a temporary one of this machine).

    `checkpoint` is where the served model is, where that is no directory on this machine under the name that the servers know.
    """

    replicas: Replicas
    directory: str | None
    checkpoint: str | None
    timeout_s: float
    drain_timeout_s: float

    async def served(self) -> dict[str, int]:
        """Return the version of each server: the one last published, 0 if none was."""
        answers = await self._all("GET", "/weight_info", timeout_s=_QUICK_S)
        rpc = await self._all("GET", "/collective_rpc", timeout_s=_QUICK_S)  # 405: it is there, and wants to be posted to
        if closed := [answer.server for answer in answers if answer.status == 404] + [
            answer.server for answer in rpc if answer.status == 404
        ]:
            raise WeightSyncError(
                f"{', '.join(dict.fromkeys(closed))} has neither the reward loop's plugin nor vLLM's own calls for new weights: "
                "install reward-loop beside vLLM, or start the server with VLLM_SERVER_DEV_MODE=1"
            )
        _check("say which version they serve", answers)
        versions = {answer.server: str(answer.body.get("weight_version")) for answer in answers}
        return {server: int(version) if version.isdigit() else 0 for server, version in versions.items()}

    async def publish(
        self, tensors: Mapping[str, torch.Tensor], mode: RewardModelTrainingMode, version: int, served: Mapping[str, int]
    ) -> PublishReport:
        """Have all servers read a checkpoint with these weights; raises WeightSyncError, and then they serve the old one."""
        began = time.monotonic()
        newest = max(served.values())
        if version < newest or (version == newest and newest > 0):
            raise WeightSyncError(f"version {version} is not above {newest}, which is served: versions only rise")
        folder, old = self._folder(), await self._old(newest)
        new = folder / f"version-{version}"
        nbytes = await asyncio.to_thread(_written, old, new, tensors, mode is RewardModelTrainingMode.FULL)
        written = time.monotonic()
        pauses = await to_the_end(self._reload(old.directory, new, version, served))
        await asyncio.to_thread(_prune, folder, {old.directory, new})
        return PublishReport(
            version=version,
            training_mode=mode,
            plane="checkpoint",
            tensors=len(tensors),
            nbytes=nbytes,
            prepare_s=0.0,
            transfer_s=written - began,
            commit_s=time.monotonic() - written,
            replicas=tuple(ReplicaReport(server, pause_s=pause_s) for server, pause_s in pauses.items()),
        )

    async def _reload(self, old: Path, new: Path, version: int, served: Mapping[str, int]) -> dict[str, float]:
        """Have all read `new`, or all `old`; return for how long each was paused."""
        began = time.monotonic()
        try:
            _check("pause", await self._all("POST", "/pause?mode=wait", timeout_s=self.drain_timeout_s))
            await self._changed(old, new, version, served)
        except BaseException:  # cancelled too: nobody reads this checkpoint, which is as large as the model
            shutil.rmtree(new, ignore_errors=True)
            raise
        finally:
            resumed = await self._all("POST", "/resume", timeout_s=_QUICK_S)
            if stuck := [str(answer) for answer in resumed if not answer.good]:
                logger.error("servers could not be resumed: %s", "; ".join(stuck))
        return dict.fromkeys(self.replicas.urls, time.monotonic() - began)

    async def _changed(self, old: Path, new: Path, version: int, served: Mapping[str, int]) -> None:
        """Have all, which are paused, read `new`; or read `old` again and raise."""
        try:
            _check("read the new checkpoint", await self._read(new))
            _check("clear their caches", await self._all("POST", "/reset_prefix_cache", timeout_s=_QUICK_S))
            _check("note the version", await self._named(dict.fromkeys(served, version)))
        except WeightSyncError as error:
            back = [*await self._read(old), *await self._all("POST", "/reset_prefix_cache", timeout_s=_QUICK_S)]
            back += await self._named(served)
            if stuck := [str(answer) for answer in back if not answer.good]:
                error.message += f"; and not all could go back to the old one: {'; '.join(stuck)}: start these again"
            raise

    async def _read(self, directory: Path) -> list[Answer]:
        body = {"method": "reload_weights", "kwargs": {"weights_path": str(directory)}}
        return await self._all("POST", "/collective_rpc", body, timeout_s=self.timeout_s)

    async def _named(self, versions: Mapping[str, int]) -> list[Answer]:
        path = "/update_weight_version"
        calls = {
            url: self.replicas.ask(url, "POST", path, {"new_version": str(version)}, timeout_s=_QUICK_S)
            for url, version in versions.items()
        }
        return await answers_of(calls)

    async def _old(self, newest: int) -> Checkpoint:
        """Return the checkpoint that is served: the one last published, or the model's own."""
        published = self._folder() / f"version-{newest}"
        if newest > 0 and published.is_dir():
            return await asyncio.to_thread(Checkpoint.read, published)
        if newest > 0:
            raise WeightSyncError(
                f"version {newest} is served, and it is not in {self._folder()}: pass the directory that it was published through"
            )
        paths = {self.checkpoint} if self.checkpoint else {await self._path(url) for url in self.replicas.urls}
        return await asyncio.to_thread(_own, sorted(paths))

    async def _path(self, url: str) -> str:
        answer = await self.replicas.ask(url, "GET", "/v1/models", timeout_s=_QUICK_S)
        _check("name their model", [answer])
        models = answer.body.get("data") or [{}]
        return str(models[0].get("root"))

    def _folder(self) -> Path:
        return shared_directory(self.directory, self.replicas.urls)

    async def _all(self, method: str, path: str, body: object = None, *, timeout_s: float) -> list[Answer]:
        ask = self.replicas.ask
        return await answers_of({url: ask(url, method, path, body, timeout_s=timeout_s) for url in self.replicas.urls})


def _own(paths: Sequence[str]) -> Checkpoint:
    directory = Path(paths[0]).expanduser()
    if len(paths) > 1 or not directory.is_dir():
        raise WeightSyncError(
            f"the model that is served ({', '.join(paths)}) is no one directory of this machine: pass checkpoint=, a directory "
            "with its config, tokenizer and weights"
        )
    return Checkpoint.read(directory)


def _written(old: Checkpoint, new: Path, tensors: Mapping[str, torch.Tensor], complete: bool) -> int:
    old.check(tensors, complete=complete)
    shutil.rmtree(new, ignore_errors=True)  # of an update that failed
    return old.write(new, tensors)


def _prune(folder: Path, kept: set[Path]) -> None:
    for directory in folder.glob("version-*"):
        if directory not in kept:
            shutil.rmtree(directory, ignore_errors=True)


def _check(what: str, answers: Sequence[Answer]) -> None:
    if bad := [answer for answer in answers if not answer.good]:
        raise WeightSyncError(f"{len(bad)} of {len(answers)} servers did not {what}: {'; '.join(map(str, bad))}")

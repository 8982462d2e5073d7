"""Adapters without a merge: servers that were started with LoRA load the adapter itself, each version under a name of its own.

It moves an adapter's bytes instead of a model's, and nothing pauses. Requests choose the version by its name ("judge-4"), so
that none meets a mixture, and older versions stay until those that use them are done. It takes vLLM's own routes (no plugin), a
server started with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1, and a directory that every server sees. vLLM takes plain
LoRA on linear layers, and with it a `score` or `classifier` of the adapter's own (`modules_to_save`).

Invariant: a name is loaded by every server, or by none once the error has been raised.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from reward_loop.errors import ConfigError, WeightSyncError
from reward_loop.sync.adapter_files import write_adapter
from reward_loop.sync.control_plane import ControlPlane
from reward_loop.sync.replicas import Replicas
from reward_loop.sync.run_apart import run_apart
from reward_loop.sync.server_call import Answer
from reward_loop.sync.servers import Servers
from reward_loop.sync.side_by_side import answers_of

_LOAD, _UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class ServedAdapter:
    """One version that every server has loaded."""

    name: str
    """The `model` of requests that want it."""
    version: int
    directory: Path


class AdapterPublisher:
    """Gives the servers of one model every new version of an adapter; one publish at a time.

    `directory` takes the versions, each in a folder `<name>-<version>`; `kept` says how many older ones stay loaded beside the
    newest. `servers` and `token_env` are those of `ControlPlane`; `timeout_s` is the time that a server has for one call.
    """

    def __init__(
        self,
        servers: str | Sequence[str] | Servers,
        directory: str | Path,
        *,
        name: str = "adapter",
        kept: int = 1,
        timeout_s: float = 60.0,
        token_env: str | None = None,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"name={name!r} becomes the name of a folder and a model; take letters, digits, '.', '_' and '-'")
        if kept < 0:
            raise ConfigError(f"kept={kept} must be 0 or more older versions")
        self._control = ControlPlane(servers, token_env=token_env)
        self._directory = Path(directory).resolve()
        self._name = name
        self._kept = kept
        self._timeout_s = timeout_s
        self._served: list[int] = []
        self._stray: list[int] = []  # of publishes that failed: some server may have them

    def publish(self, model: nn.Module, version: int | None = None, *, adapter: str | None = None) -> ServedAdapter:
        """Return once every server has loaded the model's adapter under `version` (None: the next one).

        `adapter` is its name in the PEFT model (None: the active one). Raises WeightSyncError, with what each server said, where
        one can't load it; then none has it, and the older versions are as they were.
        """
        return run_apart(lambda: self.publish_async(model, version, adapter=adapter))

    async def publish_async(self, model: nn.Module, version: int | None = None, *, adapter: str | None = None) -> ServedAdapter:
        """`publish` for a running event loop."""
        number = self._next(version)
        served = ServedAdapter(f"{self._name}-{number}", number, self._directory / f"{self._name}-{number}")
        await asyncio.to_thread(self._write, model, adapter, served.directory)
        async with self._control.reached(self._timeout_s) as replicas:
            self._stray.append(number)
            body = {"lora_name": served.name, "lora_path": str(served.directory), "load_inplace": True}
            answers = await self._told(replicas, _LOAD, body)
            if bad := [answer for answer in answers if not answer.good]:
                await self._unload(replicas, self._stray)
                raise WeightSyncError(_refusal(served, bad, len(answers)))
            self._stray.remove(number)
            self._served.append(number)
            await self._unload(replicas, self._stray)
            await self._unload(replicas, self._served, self._kept + 1)
        return served

    def _next(self, asked: int | None) -> int:
        """Return the version to publish: a folder is never written to twice, since a server may read it again at any time."""
        pattern = re.compile(re.escape(self._name) + r"-(\d+)")
        folders = self._directory.iterdir() if self._directory.is_dir() else ()
        newest = max([-1, *self._served, *(int(found[1]) for each in folders if (found := pattern.fullmatch(each.name)))])
        if asked is not None and (isinstance(asked, bool) or asked <= newest):
            raise WeightSyncError(
                f"version={asked!r} of the adapter {self._name} must be above {newest}, the newest in {self._directory}"
            )
        return newest + 1 if asked is None else asked

    def _write(self, model: nn.Module, adapter: str | None, folder: Path) -> None:
        """Let the whole folder appear at once."""
        self._directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._directory, prefix=f".{folder.name}-") as scratch:
            new = Path(scratch) / folder.name
            new.mkdir()
            write_adapter(model, adapter, new)
            new.rename(folder)

    async def _unload(self, replicas: Replicas, versions: list[int], kept: int = 0) -> None:
        """Take all but the last versions from the servers; one that a server may still have stays listed, for the next time."""
        for version in versions[: len(versions) - kept]:
            answers = await self._told(replicas, _UNLOAD, {"lora_name": f"{self._name}-{version}"})
            if all(answer.good or answer.status == 404 for answer in answers):
                versions.remove(version)
                await asyncio.to_thread(shutil.rmtree, self._directory / f"{self._name}-{version}", ignore_errors=True)

    async def _told(self, replicas: Replicas, path: str, body: object) -> list[Answer]:
        calls = {url: replicas.ask(url, "POST", path, body, timeout_s=self._timeout_s) for url in replicas.urls}
        return await answers_of(calls)


def _refusal(served: ServedAdapter, bad: Sequence[Answer], servers: int) -> str:
    said = "; ".join(map(str, bad))
    remedy = ""
    if any(answer.status == 404 and "detail" in answer.body for answer in bad):
        remedy = "; start servers with --enable-lora and the environment variable VLLM_ALLOW_RUNTIME_LORA_UPDATING=1"
    elif any(answer.status == 404 for answer in bad):
        remedy = f"; every server must see the directory {served.directory.parent}"
    return f"{len(bad)} of {servers} servers did not load {served.name}, which was taken from the others: {said}{remedy}"

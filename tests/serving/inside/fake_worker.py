"""An engine client with a worker behind it that holds no model: what vLLM's would do with the commands of an update."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Literal

from reward_loop.serving.inside.update_directory import State, Status, UpdateDirectory


class FakeWorker:
    """Obeys as vLLM's engine and our weight transfer engine do; `faults` maps a phase to what the worker notes of its failure."""

    def __init__(self, directory: UpdateDirectory) -> None:
        self.directory = directory
        self.calls: list[str] = []
        self.errored = False
        self.paused = False
        self.label = "default"
        self.sends = True
        """Whether the trainer of a transfer sends what it promised."""
        self.faults: dict[str, Status] = {}
        self.may_commit = asyncio.Event()
        self.may_commit.set()
        self.commits = asyncio.Event()
        """Set once a commit is under way."""
        self.infos: list[Mapping[str, Any]] = []
        self._active = False
        self._version: int | None = None

    def fail(self, phase: str, state: State, why: str) -> None:
        """Let this phase end so, in whichever session."""
        self.faults[phase] = Status("", state, why)

    async def init_weight_transfer_engine(self, request: Mapping[str, Any]) -> None:
        self._note("ticket", request)

    async def start_weight_update(self) -> None:
        if self._active:
            raise Exception("start_weight_update called while a weight update is already active")
        self._active = True
        self._note("start", {})

    async def update_weights(self, request: Mapping[str, Any]) -> None:
        phase, session = request["phase"], request["session"]
        self._note(phase, request)
        try:
            if not self._active:
                raise Exception("start_weight_update must be called before update_weights.")
            self._take(phase, session, request)
        except BaseException:
            self._active = False
            raise

    async def finish_weight_update(self, weight_version: str | None = None) -> None:
        self._note("finish", {})
        self.commits.set()
        if self.errored:
            await asyncio.Event().wait()  # vLLM's client never hears of it
        await self.may_commit.wait()
        self._fault("finish", "")
        if self._version is None:
            self.directory.revert()
        else:
            self.directory.path.mkdir(parents=True, exist_ok=True)
            self.directory.staged.write_bytes(b"")
            self.directory.commit(self._version, ["score.weight"])
        self._active = False
        self.label = str(weight_version)

    async def update_weight_version(self, new_version: str) -> None:
        self.label = new_version

    async def is_paused(self) -> bool:
        return self.paused

    async def pause_generation(self, *, mode: Literal["abort", "wait", "keep"] = "abort", clear_cache: bool = True) -> None:
        self._note(f"pause {mode}{' clear' if clear_cache else ''}", {})
        self.paused = True

    async def resume_generation(self) -> None:
        self._note("resume", {})
        self.paused = False

    def _take(self, phase: str, session: str, request: Mapping[str, Any]) -> None:
        self._fault(phase, session)
        match phase:
            case "prepare":
                self._version = request["version"]
                self.directory.note(Status(session, "prepared"))
            case "transfer" if self.sends:
                self.directory.note(Status(session, "received", details={"digests": ["d0", "d1"]}))
            case "transfer":
                self.directory.note(Status(session, "receiving"))
            case "verify":
                self.directory.note(Status(session, "verified"))
            case "revert":
                self._version = None
            case _:
                raise Exception("aborted")

    def _fault(self, phase: str, session: str) -> None:
        if (fault := self.faults.get(phase)) is not None:
            self.directory.note(Status(session or self.infos[-1].get("session", ""), fault.state, fault.why))
            raise Exception(f"Call to {phase} method failed: {fault.why}")

    def _note(self, call: str, info: Mapping[str, Any]) -> None:
        self.calls.append(call)
        if info:
            self.infos.append(info)

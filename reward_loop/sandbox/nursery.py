"""The nursery as seen from here: a process that is told to run programs, and says how each ended.

Invariants: whoever waits for a run learns of its end or of the nursery's; a run that nobody waits for any more is killed; when
this process ends, however it ends, so does the nursery with all its programs.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, Literal

from reward_loop.errors import SandboxError
from reward_loop.sandbox.descriptors import Parcel
from reward_loop.sandbox.interpreter import Interpreter, open_bundle
from reward_loop.sandbox.probe import bubblewrap_path, make_base
from reward_loop.sandbox.verdict import Limits

_START_S = 60.0
_END_S = 15.0
_MARGIN_MB = 64
"""Address space of the interpreter itself, and of what it has loaded for programs."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended: its wait status (None: it was killed before it ended by itself), and why it was killed."""

    status: int | None
    why: Literal["timeout", "disk", "killed"] | None
    oom: bool
    seconds: float

    @property
    def signal(self) -> int | None:
        """The signal that ended it."""
        return os.WTERMSIG(self.status) if self.status is not None and os.WIFSIGNALED(self.status) else None

    @property
    def exit_code(self) -> int | None:
        """What it exited with."""
        return os.WEXITSTATUS(self.status) if self.status is not None and os.WIFEXITED(self.status) else None


class Nursery:
    """One nursery process; made by `start`."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, base: str, said: Any) -> None:
        self._process, self._control, self._base, self._said = process, control, base, said
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[Ended]] = {}
        self._answers: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._last = 0
        self._room = asyncio.Event()
        self.dead: str | None = None
        self.pid = process.pid
        self._loop.add_reader(control.fileno(), self._hear)

    @classmethod
    async def start(cls, interpreter: Interpreter, level: int, places: int) -> Nursery:
        """Start a nursery for so many programs side by side, and wait until it is ready; raises SandboxError."""
        nursery = _spawn(interpreter, level, places)
        try:
            async with asyncio.timeout(_START_S):
                answer = await nursery._answers
            if answer["op"] == "ready":
                nursery.pid = answer["pid"]
                return nursery
        except TimeoutError:
            answer = {"error": f"it was not ready within {_START_S} s; the machine may be overloaded"}
        except asyncio.CancelledError:
            nursery.kill()
            raise
        nursery.kill()
        raise SandboxError(f"the sandbox could not start at level {level}: {answer['error']}")

    async def run(
        self,
        kind: Literal["program", "served", "tester"],
        parcel: Parcel,
        limits: Limits,
        *,
        cpu_s: float,
        wall_s: float | None,
    ) -> Ended:
        """Run one program until nothing is left of it; it is killed after `wall_s`, or where this is cancelled.

        The parcel begins with the payload's descriptor and goes on with those that the program is given.
        """
        self._last = number = self._last + 1
        asked = {
            "op": "run", "id": number, "kind": kind, "wall_s": wall_s, "cpu_s": ceil(cpu_s), "file_mb": limits.file_mb,
            "memory_mb": limits.memory_mb + _MARGIN_MB, "processes": limits.processes,
        }  # fmt: skip
        ended: asyncio.Future[Ended] = self._loop.create_future()
        self._waiting[number] = ended
        try:
            await self._send(asked, parcel.numbers)
            parcel.close()
            return await ended
        except asyncio.CancelledError:
            with suppress(SandboxError):  # it died: so has the program
                await self._send({"op": "kill", "id": number}, ())
            raise
        finally:
            self._waiting.pop(number, None)

    async def _send(self, asked: dict[str, Any], descriptors: Sequence[int]) -> None:
        message = json.dumps(asked).encode()
        while self.dead is None:
            try:
                socket.send_fds(self._control, [message], descriptors)
            except BlockingIOError:  # the kernel queues few packets
                self._room.clear()
                self._loop.add_writer(self._control.fileno(), self._has_room)
                await self._room.wait()
            except OSError as error:
                self._die(str(error))
            else:
                return
        raise SandboxError(self.dead)

    def _has_room(self) -> None:
        self._loop.remove_writer(self._control.fileno())
        self._room.set()

    def _hear(self) -> None:
        while self.dead is None:
            try:
                message = self._control.recv(65536)
            except BlockingIOError:
                return
            except ConnectionError:  # it died before it read all that it was told
                message = b""
            if not message:
                self._die(self._last_words())
                return
            self._understand(json.loads(message))

    def _understand(self, answer: dict[str, Any]) -> None:
        if answer["op"] != "ended":
            self._answers.set_result(answer)
            return
        waiting = self._waiting.pop(answer["id"], None)
        if waiting is None or waiting.done():
            return
        if answer["error"] is not None:
            waiting.set_exception(SandboxError(f"the sandbox could not run a program: {answer['error']}"))
        else:
            waiting.set_result(Ended(answer["status"], answer["why"], answer["oom"], answer["seconds"]))

    def _last_words(self) -> str:
        self._said.seek(0)
        words = self._said.read()[-1000:].decode("utf-8", "replace").strip()
        return (
            f"the process that runs the programs ended unexpectedly, and they with it; it starts again for the next one {words}"
        )

    def _die(self, why: str) -> None:
        if self.dead is not None:
            return
        self.dead = why
        self._loop.remove_reader(self._control.fileno())
        self._loop.remove_writer(self._control.fileno())
        self._control.close()
        self._room.set()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(SandboxError(why))
        if not self._answers.done():
            self._answers.set_result({"op": "fatal", "error": why})

    def kill(self) -> None:
        """End the nursery at once, and remove what it can't remove any more."""
        self._die("the sandbox was ended")
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self._said.close()
        shutil.rmtree(self._base, ignore_errors=True)

    async def close(self) -> None:
        """Hang up and wait until the nursery has ended its programs and itself; kill it where that takes too long."""
        self._die("the sandbox was closed")
        try:
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, _END_S)
        finally:
            self.kill()


def _spawn(interpreter: Interpreter, level: int, places: int) -> Nursery:
    base, bundle = make_base(), open_bundle()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    said = tempfile.TemporaryFile()  # noqa: SIM115  # closed by the nursery's `kill`
    settings = {
        "main": "reward_loop.sandbox.inside.keeper", "control": theirs.fileno(), "bundle": bundle, "parent": os.getpid(),
        "level": level, "base": base, "places": places, "readable": interpreter.folders, "bwrap": bubblewrap_path(),
        "interpreter": interpreter.command(), }  # fmt: skip
    try:
        process = subprocess.Popen(  # noqa: S603
            [*interpreter.command(), str(bundle), json.dumps(settings)], pass_fds=[bundle, theirs.fileno()], env={}, cwd="/",
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        ours.close()
        said.close()
        Path(base).rmdir()
        raise SandboxError(f"{interpreter.path} could not be started: {error}") from error
    finally:
        theirs.close()
        os.close(bundle)
    ours.setblocking(False)
    return Nursery(process, ours, base, said)

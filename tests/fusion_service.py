"""A service that speaks SandboxFusion's /run_code on loopback, runs the programs for real, and can misbehave as told."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any, Literal

from aiohttp import web

Mood = Literal["well", "429", "404", "500", "502", "504", "garbage", "empty", "hang", "hang up", "sandbox error", "runs nothing"]


class FusionService:
    """What the fake was asked, and its moods: the first requests find them in turn, all others find it well."""

    def __init__(self, moods: Sequence[Mood], retry_after: str | None) -> None:
        self.url = ""
        self.asked: list[dict[str, Any]] = []
        self.at_once = 0
        self._now = 0
        self._moods = list(moods)
        self._retry_after = retry_after
        self._awake = asyncio.Event()

    def let_go(self) -> None:
        """Answer those that hang."""
        self._awake.set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        self.asked.append(await request.json())
        self._now += 1
        self.at_once = max(self.at_once, self._now)
        try:
            return await self._answer(request, self._moods.pop(0) if self._moods else "well")
        finally:
            self._now -= 1

    async def _answer(self, request: web.Request, mood: Mood) -> web.StreamResponse:
        if mood.isdigit():
            headers = {"Retry-After": self._retry_after} if mood == "429" and self._retry_after else {}
            return web.Response(status=int(mood), text=f"I feel {mood}", headers=headers)
        if mood == "hang":
            await self._awake.wait()
        if mood == "hang up":
            response = web.StreamResponse(headers={"Content-Length": "1000"})
            await response.prepare(request)
            await response.write(b'{"status": "Succ')
            if request.transport is not None:
                request.transport.close()
            return response
        bodies: dict[Mood, Any] = {
            "sandbox error": {"status": "SandboxError", "message": "no container is free"},
            "runs nothing": {"status": "Success", "message": "", "compile_result": None, "run_result": None},
            "empty": {},
        }
        if mood == "garbage":
            return web.Response(text="<html>Welcome</html>")
        return web.json_response(bodies[mood] if mood in bodies else await run_code(self.asked[-1]))


async def run_code(asked: dict[str, Any]) -> dict[str, Any]:
    """Run a program as the service does, without its walls."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
        file = Path(folder) / "program.py"
        file.write_text(asked["code"], encoding="utf-8", errors="surrogatepass")
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", str(file)), cwd=folder, stdin=asyncio.subprocess.PIPE, stdout=stdout, stderr=stderr
        )
        status = "Finished"
        try:
            async with asyncio.timeout(asked["run_timeout"]):
                await process.communicate(asked["stdin"].encode())
        except TimeoutError:
            status = "TimeLimitExceeded"
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        said = [_read(stdout), _read(stderr)]  # also of a program that was killed
    ran = {
        "status": status,
        "execution_time": time.monotonic() - began,
        "return_code": process.returncode if status == "Finished" else None,
        "stdout": said[0],
        "stderr": said[1],
    }
    ok = status == "Finished" and process.returncode == 0
    return {"status": "Success" if ok else "Failed", "message": "", "compile_result": None, "run_result": ran, "files": {}}


def _read(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", "replace")


@asynccontextmanager
async def fusion_service(*moods: Mood, retry_after: str | None = None) -> AsyncGenerator[FusionService]:
    """Serve on a free port until the block is left."""
    service = FusionService(moods, retry_after)
    app = web.Application()
    app.router.add_post("/run_code", service.handle)
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    service.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield service
    finally:
        service.let_go()
        await runner.cleanup()

"""Reward servers as processes of their own, light ones: the score of a text is a function of it. Run as a program, it is one.

They answer POST /score as real ones do and GET /health, and can be killed, paused and started again at the same address.
"""

from __future__ import annotations

import asyncio
import json
import select
import signal
import subprocess
import sys
import zlib
from collections.abc import Callable
from typing import Any, Self, cast

import httptools

from tests.processes import ROOT


def score_of(text: str) -> float:
    """The one right answer."""
    return zlib.crc32(text.encode()) / 1000


class Scorer:
    """A server; a context manager that kills it."""

    def __init__(self, delay_s: float = 0.002) -> None:
        self._delay_s = delay_s
        self._port = 0
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, again at its address, and return when it listens."""
        command = [sys.executable, "-m", "tests.router.scorers", str(self._port), str(self._delay_s)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], 60.0)[0], "the server does not start"
        self._port = int(self._process.stdout.readline())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def pause(self) -> None:
        """Let it hang: connections to it are accepted, and nothing is answered."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)


class _Connection(asyncio.Protocol):
    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._expect()

    def _expect(self) -> None:
        self._parser = httptools.HttpRequestParser(self)
        self._path = self._body = b""

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        if self._path == b"/health":
            self._answer({"status": "ok"})
            return
        score = score_of(json.loads(self._body)["input"])
        asyncio.get_running_loop().call_later(self._delay_s, self._answer, {"data": [{"index": 0, "score": score}]})

    def _answer(self, body: Any) -> None:
        content = json.dumps(body).encode()
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(content)
        self._transport.write(head + content)
        self._expect()


async def _serve(port: int, delay_s: float) -> None:
    make: Callable[[], _Connection] = lambda: _Connection(delay_s)  # noqa: E731
    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", port, reuse_address=True)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2])))

"""A process that answers like a reward server, to be started, crashed and stopped without a model.

    python fake_engine.py PORT [deaf] [ill] [holds] [child] [grows]

`deaf`: it ignores SIGTERM; `ill`: it ends at the start as vLLM does; `holds`: /score never answers; `child`: it starts another
process and a segment of shared memory, and prints their names; `grows`: it takes 512 MiB.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.shared_memory import SharedMemory
from typing import Any


class _Handler(BaseHTTPRequestHandler):
    modes: tuple[str, ...] = ()
    asleep = False
    segment: SharedMemory | None = None

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""

    def do_GET(self) -> None:
        """/health, with the state."""
        self._answer(200, {"status": "ok", "asleep": _Handler.asleep})

    def do_POST(self) -> None:
        """/score, /sleep and /wake_up."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        if path == "/score" and "holds" in self.modes:
            threading.Event().wait()
        if path in ("/sleep", "/wake_up"):
            _Handler.asleep = path == "/sleep"
        self._answer(503 if path == "/score" and _Handler.asleep else 200, {"data": [{"index": 0, "score": 0.5}]})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def say(*words: object) -> None:
    """Write a line to the log."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def main(port: int, *modes: str) -> None:
    if "deaf" in modes:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "ill" in modes:
        say("INFO 01-01 00:00:00 [a.py:1] starting")
        say("(EngineCore pid=1) ERROR 01-01 00:00:00 [core.py:1] MemoryError: 12 GiB are wanted")
        sys.exit(1)
    if "child" in modes:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True)
        _Handler.segment = SharedMemory(create=True, size=64)
        say("child", child.pid, _Handler.segment.name)
    if "grows" in modes:
        grown = bytearray(512 << 20)
        say("grown", len(grown), sum(grown[:: 1 << 12]))
    _Handler.modes = modes
    ThreadingHTTPServer(("127.0.0.1", port), _Handler).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])

"""The routers that are compared, and how each is started in front of the same servers.

nginx is tuned: least_conn, one worker, connections kept, no files in between, retries on another server. The others have
their own defaults, but for vllm-router's policy, whose default asks every server for every chat request.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.load import chat_request
from benchmarks.peers.processes import Measured, first_line, free_port, running
from reward_loop.router.settings import RouterSettings

HERE = Path(__file__).resolve().parent
READY_S, ANSWER_S = 60.0, 10.0
MODEL, TOKEN = "m", "benchmark"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a router runs: its core, its files, the servers behind it, and the programs that are not ours."""

    core: int
    directory: Path
    servers: tuple[Measured, ...]
    nginx: str | None
    vllm_router: str | None

    @property
    def urls(self) -> list[str]:
        """The addresses of the servers."""
        return [server.url for server in self.servers]


@contextmanager
def reply_server(name: str, core: int, directory: Path, *options: str) -> Generator[Measured]:
    """Run one server of fixed replies."""
    log = directory / f"{name}.log"
    with running([sys.executable, str(HERE / "reply_server.py"), *options], core, log) as process:
        yield Measured(name, int(first_line(process, log)), process.pid)


@contextmanager
def ours(place: Place) -> Generator[Measured]:
    """Run the router of this package with its defaults."""
    log = place.directory / "ours.log"
    command = [sys.executable, "-m", "reward_loop.router"]
    with running(command, place.core, log, stdin=subprocess.PIPE) as process:
        if process.stdin is None:
            raise RuntimeError("the router has no standard input")
        process.stdin.write(RouterSettings(admin_token=TOKEN).to_json() + "\n")
        process.stdin.flush()
        router = Measured("ours", int(json.loads(first_line(process, log))["port"]), process.pid)
        for url in place.urls:
            _post(f"{router.url}/admin/replicas", json.dumps({"model": MODEL, "url": url}).encode())
        yield _ready(router, log)


@contextmanager
def nginx(place: Place) -> Generator[Measured]:
    """Run nginx with one worker."""
    port, log, config = free_port(), place.directory / "nginx.log", place.directory / "nginx.conf"
    servers = "\n".join(f"    server {url.removeprefix('http://')} max_fails=2 fail_timeout=2s;" for url in place.urls)
    config.write_text(_NGINX.format(directory=place.directory, port=port, servers=servers), encoding="utf-8")
    with running([str(place.nginx), "-c", str(config), "-e", str(log)], place.core, log) as process:
        yield _ready(Measured("nginx", port, process.pid), log)


@contextmanager
def vllm_router(place: Place) -> Generator[Measured]:
    """Run vLLM's Rust router, round robin."""
    port, log = free_port(), place.directory / "vllm-router.log"
    command = [str(place.vllm_router), "--host", "127.0.0.1", "--port", str(port), "--policy", "round_robin"]
    command += ["--prometheus-port", str(free_port()), "--log-level", "error", "--worker-urls", *place.urls]
    with running(command, place.core, log) as process:
        yield _ready(Measured("vllm-router", port, process.pid), log)


@contextmanager
def _script(name: str, place: Place) -> Generator[Measured]:
    """Run a router that is a script of this folder."""
    port, log = free_port(), place.directory / f"{name}.log"
    command = [sys.executable, str(HERE / f"{name.replace('-', '_')}.py"), str(port), *place.urls]
    with running(command, place.core, log) as process:
        yield _ready(Measured(name, port, process.pid), log)


def verl_like(place: Place) -> AbstractContextManager[Measured]:
    """Run a FastAPI and aiohttp proxy as verl has it."""
    return _script("verl-like", place)


def splice(place: Place) -> AbstractContextManager[Measured]:
    """Run the floor: bytes across, unread."""
    return _script("splice", place)


CONTESTANTS: dict[str, Callable[[Place], AbstractContextManager[Measured]]] = {
    "ours": ours,
    "nginx": nginx,
    "vllm-router": vllm_router,
    "verl-like": verl_like,
    "splice": splice,
}


def missing(name: str, place: Place) -> str | None:
    """Return why a contestant can't take part, if so."""
    if name == "nginx" and not _found(place.nginx):
        return f"nginx is not at {place.nginx}; install it (Debian package nginx) or name its binary with --nginx"
    if name == "vllm-router" and not _found(place.vllm_router):
        return f"vllm-router is not at {place.vllm_router}; install it with pip in any environment and name it with --vllm-router"
    return None


def _found(program: str | None) -> bool:
    return bool(program and shutil.which(program))


def _post(url: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN}"}
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    direct.open(urllib.request.Request(url, body, headers), timeout=ANSWER_S).close()


def _ready(router: Measured, log: Path) -> Measured:
    """Return the router once it passes a request on."""
    body = chat_request(10).partition(b"\r\n\r\n")[2]
    until = time.monotonic() + READY_S
    while True:
        try:
            _post(f"{router.url}/v1/chat/completions", body)
        except OSError as error:
            if time.monotonic() > until:
                raise RuntimeError(f"{router.name} is not ready: {error}; it says: {log.read_text('utf-8')[-2000:]}") from error
            time.sleep(0.1)
        else:
            return router


_NGINX = """
daemon off;
user root;
worker_processes 1;
worker_rlimit_nofile 8192;
pid {directory}/nginx.pid;
events {{ worker_connections 4096; }}
http {{
  access_log off;
  client_body_temp_path {directory}/nginx-body;
  proxy_temp_path {directory}/nginx-proxy;
  fastcgi_temp_path {directory}/nginx-fastcgi;
  uwsgi_temp_path {directory}/nginx-uwsgi;
  scgi_temp_path {directory}/nginx-scgi;
  client_max_body_size 64m;
  client_body_buffer_size 1m;
  keepalive_timeout 1h;
  keepalive_requests 1000000000;
  upstream servers {{
    least_conn;
{servers}
    keepalive 512;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://servers;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
      proxy_connect_timeout 2s;
      proxy_next_upstream error timeout http_500 http_502 http_503 http_504 http_429 non_idempotent;
    }}
  }}
}}
"""

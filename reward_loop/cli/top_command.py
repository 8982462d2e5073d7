"""`reward-loop top`: a live view of a router and its replicas.

Invariant: once a router has answered, the view goes on while it is away (it may be restarting) and says so; it ends by Ctrl-C.
"""

from __future__ import annotations

import http.client
import json
import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Table

from reward_loop.cli.top_view import Reading, read_metrics, view
from reward_loop.errors import ConfigError, RouterError

ANSWER_S = 5.0
READINGS = 10
"""Over how many intervals rates and latencies are taken, so that they don't flicker."""
_PLAIN_COLUMNS = 160


def top(
    address: Annotated[str, typer.Argument(metavar="ADDRESS", help="The router's host:port, as get_router_address() gives it.")],
    interval_s: Annotated[float, typer.Option("--interval", min=0.05, help="Seconds between two readings.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one table, of one interval, and end.")] = False,
    token_env: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Environment variable with the router's admin token; shows what troubles replicas."),
    ] = None,
) -> None:
    """Show what a router's models and replicas do, now: load, rates, latencies, failures. Ctrl-C ends it."""
    router = Router(address, None if token_env is None else _token(token_env))
    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, _PLAIN_COLUMNS)
    watched = Watched(router)
    try:
        time.sleep(interval_s)
        if once:
            console.print(watched.table())
        elif console.is_terminal:
            with Live(watched.table_or_why_not(), console=console, screen=True, auto_refresh=False) as live:
                _repeat(interval_s, lambda: live.update(watched.table_or_why_not(), refresh=True))
        else:
            _repeat(interval_s, lambda: console.print(watched.table_or_why_not()))
    except KeyboardInterrupt:
        return  # the way to end a view is no failure


def _repeat(interval_s: float, show: Callable[[], None]) -> None:
    while True:
        show()
        time.sleep(interval_s)


def _token(name: str) -> str:
    if not (token := os.environ.get(name)):
        raise ConfigError(f"--token-env: the environment variable {name} is not set; put the router's admin token into it")
    return token


@dataclass(frozen=True, slots=True)
class Router:
    """Reads a router over HTTP. Raises RouterError that names the address."""

    address: str
    token: str | None = None

    def reading(self) -> Reading:
        """Return what it has counted so far."""
        text = self._get("/metrics").decode("utf-8", "replace")
        try:
            return read_metrics(text, time.monotonic())
        except RouterError as error:
            raise RouterError(f"{self.address} is not the router: {error.message}") from error

    def troubles(self) -> dict[str, str]:
        """Return what was last wrong with each replica, by address; nothing without a token."""
        if self.token is None:
            return {}
        replicas: list[dict[str, Any]] = json.loads(self._get("/admin/replicas"))["replicas"]
        return {str(replica["url"]): str(replica["trouble"]) for replica in replicas}

    def _get(self, path: str) -> bytes:
        headers = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        host, port = self._host_and_port()
        connection = http.client.HTTPConnection(host, port, timeout=ANSWER_S)
        try:
            connection.request("GET", path, headers=headers)
            reply = connection.getresponse()
            body = reply.read()
        except (OSError, http.client.HTTPException) as error:
            raise RouterError(f"no router answers at {self.address}: {error or type(error).__name__}; is it running?") from error
        finally:
            connection.close()
        if reply.status == 401:
            raise RouterError(
                f"the router at {self.address} refuses the token; give the one of its admin_token_env by --token-env"
            )
        if reply.status != 200:
            raise RouterError(f"{self.address} is not the router: it answered GET {path} with {reply.status} {body[:200]!r}")
        return body

    def _host_and_port(self) -> tuple[str, int]:
        try:
            parts = urlsplit(self.address if "://" in self.address else f"http://{self.address}")
            host, port = parts.hostname, parts.port
        except ValueError:
            host = port = None
        if not host or not port:
            raise ConfigError(f"the router's address must be host:port (IPv6 hosts in brackets), not {self.address!r}")
        return host, port


@dataclass(slots=True)
class Watched:
    """The last readings of a router; the first is taken at once."""

    router: Router
    readings: deque[Reading] = field(default_factory=lambda: deque(maxlen=READINGS + 1))

    def __post_init__(self) -> None:
        self.readings.append(self.router.reading())

    def table(self) -> Table:
        """Read again and return the table; RouterError if the router does not answer."""
        now, last = self.router.reading(), self.readings[-1]
        if now.requests < last.requests:  # it was restarted in between, and has counted from 0
            self.readings.clear()
            self.readings.append(Reading(last.at_s))
        before = self.readings[0]
        self.readings.append(now)
        return view(self.router.address, before, now, self.router.troubles())

    def table_or_why_not(self) -> Table | str:
        """Return the table, or what is wrong with the router."""
        try:
            return self.table()
        except RouterError as error:
            return error.message

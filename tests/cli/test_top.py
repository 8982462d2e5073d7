"""`reward-loop top`: what it shows of a router, and what it says where there is none."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import pty
import signal
import socket
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import accumulate
from threading import Thread

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from reward_loop.cli.top_command import Router, Watched, top
from reward_loop.cli.top_view import Counts, read_metrics, view
from reward_loop.errors import ConfigError, RouterError
from reward_loop.router.fleet import LATENCY_BOUNDS_S, Fleet
from reward_loop.router.metrics import Metrics
from reward_loop.router.process import RouterProcess
from reward_loop.router.settings import RouterSettings

ONE, TWO = "http://127.0.0.1:8001", "http://127.0.0.1:8002"


def shown(fleet_before: bytes, fleet_now: bytes, seconds: float, troubles: dict[str, str] | None = None) -> str:
    """What a terminal shows of two metrics that are so many seconds apart."""
    screen = io.StringIO()
    before, now = read_metrics(fleet_before.decode(), 100.0), read_metrics(fleet_now.decode(), 100.0 + seconds)
    Console(file=screen, width=160).print(view("127.0.0.1:8000", before, now, troubles or {}))
    return screen.getvalue()


def row_of(table: str, name: str) -> list[str]:
    """The cells of the row that begins with a name."""
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in table.splitlines() if line.startswith("│")]
    return next(row for row in rows if row[0] == name)


@pytest.fixture
def fleet() -> Fleet:
    """Two active replicas of one model, which have worked already."""
    fleet = Fleet()
    for url in (ONE, TWO):
        replica = fleet.wake(fleet.add("judge", url).url)
        replica.outcomes["ok"] = 1000
        replica.latency_counts[10] = 1000
    fleet.counters.requests = 2000
    return fleet


def test_rates_and_latencies_are_those_since_the_earlier_reading(fleet: Fleet) -> None:
    metrics = Metrics(fleet)
    before = metrics.text()
    one = fleet.find(ONE)
    one.outcomes |= {"ok": 1020, "failed": 4, "cut": 2, "busy": 8, "rejected": 2}
    one.latency_counts[7] = 20  # between 6.4 and 12.8 ms
    one.in_flight = 3
    fleet.counters.requests += 30
    fleet.counters.retries += 6
    fleet.pools["judge"].waiting = 5
    table = shown(before, metrics.text(), 2.0)
    assert row_of(table, ONE) == [ONE, "active", "3", "", "18", "5.0", "3.0", "9.6 ms", "12.7 ms"]
    assert row_of(table, TWO) == [TWO, "active", "0", "", "0", "0", "0", "none", "none"]
    assert row_of(table, "judge")[:6] == ["judge", "2 of 2 active", "3", "5", "18", "5.0"]
    assert "15 requests/s, 3.0 retries/s, 0 hedges/s" in table
    assert "2,030 requests" in table


def test_states_troubles_and_errors_of_the_router_itself_are_told(fleet: Fleet) -> None:
    before = Metrics(fleet).text()
    fleet.eject(fleet.find(TWO), "its last 3 replies were 500")
    fleet.counters.answered["queue_full"] = 7
    table = shown(before, Metrics(fleet).text(), 1.0, {TWO: "its last 3 replies were [500]"})
    assert row_of(table, TWO)[1] == "ejected"
    assert row_of(table, TWO)[-1] == "its last 3 replies were [500]", "brackets are text here, not markup"
    assert "1 of 2 active" in table
    assert "7 queue_full" in table


def test_a_replica_that_came_in_between_is_shown_with_all_it_did(fleet: Fleet) -> None:
    before = Metrics(fleet).text()
    fleet.add("other", "http://127.0.0.1:8003").outcomes["ok"] = 40
    assert row_of(shown(before, Metrics(fleet).text(), 4.0), "http://127.0.0.1:8003")[4] == "10"


@given(st.lists(st.floats(1e-5, 1000.0), min_size=1), st.sampled_from([0.5, 0.99]))
def test_a_latency_is_told_to_within_its_bucket(latencies: list[float], quantile: float) -> None:
    counts = [0] * (len(LATENCY_BOUNDS_S) + 1)
    for latency in latencies:
        counts[bisect_left(LATENCY_BOUNDS_S, latency)] += 1
    bounds = [*LATENCY_BOUNDS_S, float("inf")]
    told = Counts(buckets=dict(zip(bounds, map(float, accumulate(counts)), strict=True))).latency_s(quantile)
    rank = next(rank for rank in range(1, len(latencies) + 1) if rank >= len(latencies) * quantile)
    bucket = bisect_left(LATENCY_BOUNDS_S, sorted(latencies)[rank - 1])
    least = LATENCY_BOUNDS_S[bucket - 1] if bucket else 0.0
    assert told is not None
    assert least * (1 - 1e-9) <= told <= LATENCY_BOUNDS_S[min(bucket, len(LATENCY_BOUNDS_S) - 1)] * (1 + 1e-9)


@pytest.mark.parametrize("text", ["<html>\n", "", "python_info 1\n"])
def test_metrics_of_something_else_are_refused(text: str) -> None:
    with pytest.raises(RouterError, match="its /metrics"):
        read_metrics(text, 0.0)


class Page(BaseHTTPRequestHandler):
    """Answers with the next page of its server, the last for ever; None: hangs up."""

    def do_GET(self) -> None:
        pages: list[tuple[int, bytes] | None] = getattr(self.server, "pages")  # noqa: B009
        page = pages.pop(0) if len(pages) > 1 else pages[0]
        if page is not None:
            self.send_response(page[0])
            self.send_header("Content-Length", str(len(page[1])))
            self.end_headers()
            self.wfile.write(page[1])

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class calls it so
        """Say nothing."""


@contextmanager
def serving(*pages: tuple[int, bytes] | None) -> Generator[str]:
    """A server that gives these pages one after the other; its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        setattr(server, "pages", list(pages))  # noqa: B010
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_a_restarted_router_is_counted_from_its_start(fleet: Fleet) -> None:
    anew = Fleet()
    anew.add("judge", ONE).outcomes["ok"] = 10
    anew.counters.requests = 10
    with serving((200, Metrics(fleet).text()), (200, Metrics(anew).text())) as address:
        watched = Watched(Router(address))
        watched.table()
        last, now = watched.readings
        assert (last.requests, now.requests) == (0, 10)
        assert now.at_s > last.at_s


def test_a_router_that_is_away_for_a_while_is_said_to_be(fleet: Fleet) -> None:
    page = (200, Metrics(fleet).text())
    with serving(page, None, page) as address:
        watched = Watched(Router(address))
        assert str(watched.table_or_why_not()).startswith(f"no router answers at {address}: ")
        assert not isinstance(watched.table_or_why_not(), str)


def test_an_address_where_no_router_is_is_named() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        with pytest.raises(RouterError, match=f"no router answers at {address}: .*refused"):
            top(address)
    with serving((404, b"nothing here")) as address, pytest.raises(RouterError, match="404 b'nothing here'"):
        top(address)
    with serving((200, b"python_info 1\n")) as address, pytest.raises(RouterError, match=f"{address} is not the router"):
        top(address)
    for wrong in ("router", "127.0.0.1", "http://", "127.0.0.1:port", "[::1:8000", ""):
        with pytest.raises(ConfigError, match="must be host:port"):
            top(wrong)


def test_the_token_comes_from_the_environment(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROUTER_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="ROUTER_TOKEN is not set"):
        top("127.0.0.1:8000", token_env="ROUTER_TOKEN")
    monkeypatch.setenv("ROUTER_TOKEN", "wrong")
    pages = (200, Metrics(fleet).text())
    with serving(pages, pages, (401, b"{}")) as address, pytest.raises(RouterError, match="refuses the token"):
        top(address, interval_s=0.05, once=True, token_env="ROUTER_TOKEN")


@asynccontextmanager
async def replica() -> AsyncGenerator[str]:
    """A server that is healthy and answers every POST; its URL."""

    async def answer(request: web.Request) -> web.Response:
        return web.json_response({"data": []})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def keep_asking(address: str) -> None:
    """Send one request after the other until cancelled."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10.0)) as session:
        while True:
            async with session.post(f"http://{address}/score", json={"model": "tiny", "input": "x"}) as reply:
                await reply.read()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_one_table_of_a_real_router(host: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async with replica() as url, RouterProcess(RouterSettings(host=host)) as router, asyncio.TaskGroup() as tasks:
        await router.add("tiny", url)
        asking = tasks.create_task(keep_asking(router.address))
        monkeypatch.setenv("ROUTER_TOKEN", router.token)
        address = router.address
        await asyncio.to_thread(top, address, 0.5, True, "ROUTER_TOKEN")
        asking.cancel()
    table = capsys.readouterr().out
    assert f"router {address}: " in table
    row = row_of(table, url)
    assert row[1] == "active"
    assert float(row[4].replace(",", "")) > 0
    assert row[7].endswith("s")


def test_the_view_stays_in_a_terminal_until_ctrl_c(fleet: Fleet) -> None:
    with serving((200, Metrics(fleet).text())) as address:
        terminal, its_end = pty.openpty()
        run = f"from reward_loop.cli.top_command import top; top({address!r}, 0.05)"
        process = subprocess.Popen([sys.executable, "-c", run], stdin=its_end, stdout=its_end, stderr=its_end)
        os.close(its_end)
        try:
            seen, until = b"", time.monotonic() + 60
            while seen.count(b"requests/s,") < 3:
                assert time.monotonic() < until, seen
                seen += os.read(terminal, 65536)
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(OSError):  # the other end has hung up
                while os.read(terminal, 65536):
                    pass
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
            os.close(terminal)

"""Load that wrk does not make: arrivals at random times, and a batch whose requests bring their own work.

python benchmarks/peers/load.py PORT open --rate 500 --seconds 4 [--seed 0]
python benchmarks/peers/load.py PORT batch --requests 2000 --in-flight 24 --mean-ms 40 --sigma 0.8 [--seed 0]

Prints {"p50_us", "p99_us", "seconds", "requests", "failed"} as one line of JSON; times are from the sending of a request to its
reply's end. Plain blocking code around select(), whose time-outs are exact to microseconds; those of uvloop are to milliseconds.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import random
import select
import socket
import statistics
import time
from collections.abc import Callable

import httptools

DEADLINE_S = 30.0
MOST_CONNECTIONS = 512


def chat_request(filler: int, user: str = "") -> bytes:
    """Return a POST of a chat completion with so many bytes of text."""
    messages = [{"role": "user", "content": "x" * filler}]
    body = json.dumps({"model": "m", "messages": messages, "max_tokens": 1, "user": user}).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: router\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


class Connection:
    """One keep-alive connection with at most one request in flight."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=DEADLINE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sent_s = 0.0
        self.took_s: float | None = None
        self.status = 0

    def fileno(self) -> int:
        """Return what select() waits for."""
        return self._socket.fileno()

    def send(self, request: bytes) -> None:
        """Begin a request."""
        self._parser = httptools.HttpResponseParser(self)
        self.took_s = None
        self._sent_s = time.perf_counter()
        self._socket.sendall(request)

    def receive(self) -> None:
        """Take what has come."""
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionError("the router closed the connection before its reply was whole")
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        """Note the time: the reply is whole."""
        self.took_s = time.perf_counter() - self._sent_s
        self.status = self._parser.get_status_code()


class Load:
    """Sends requests on as many connections as it needs and keeps what each reply took."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[Connection] = []
        self._busy: list[Connection] = []
        self.took_s: list[float] = []
        self.failed = 0

    def send(self, request: bytes) -> None:
        """Begin a request on an idle connection or a new one."""
        if not self._idle and len(self._busy) >= MOST_CONNECTIONS:
            raise RuntimeError(f"{MOST_CONNECTIONS} requests are in flight: the router does not keep up with the rate")
        connection = self._idle.pop() if self._idle else Connection(self._port)
        connection.send(request)
        self._busy.append(connection)

    @property
    def in_flight(self) -> int:
        """How many requests have no reply yet."""
        return len(self._busy)

    def wait(self, seconds: float) -> None:
        """Take replies until one has come or the time is over."""
        for connection in select.select(self._busy, [], [], seconds)[0]:
            connection.receive()
            if connection.took_s is not None:
                self.took_s.append(connection.took_s)
                self.failed += connection.status != 200
                self._busy.remove(connection)
                self._idle.append(connection)


def arrive_at_random(load: Load, rate: float, seconds: float, seed: int) -> None:
    """Send `rate` requests a second, whatever becomes of them, at times as a Poisson process has them."""
    chance = random.Random(seed)
    request = chat_request(900)
    started = due = time.perf_counter()
    while due < started + seconds:
        while (left := due - time.perf_counter()) > 0:
            load.wait(left)
        load.send(request)
        due += chance.expovariate(rate)


def send_batch(load: Load, requests: int, in_flight: int, mean_ms: float, sigma: float, seed: int) -> None:
    """Keep so many requests in flight until all are sent; the service times are lognormal with this mean."""
    chance = random.Random(seed)
    for _ in range(requests):
        while load.in_flight >= in_flight:
            load.wait(DEADLINE_S)
        service_ms = chance.lognormvariate(math.log(mean_ms) - sigma**2 / 2, sigma)
        load.send(chat_request(100, f"service_ms={service_ms:.3f}"))


def measured(port: int, sending: Callable[[Load], None]) -> dict[str, float]:
    """Return what the load took, the last replies included."""
    load = Load(port)
    started = time.perf_counter()
    sending(load)
    until = time.perf_counter() + DEADLINE_S
    while load.in_flight:
        load.wait(DEADLINE_S)
        if time.perf_counter() > until:
            raise RuntimeError(f"{load.in_flight} requests had no reply {DEADLINE_S:.0f} s after the last was sent")
    percentiles = statistics.quantiles(load.took_s, n=100)
    return {
        "p50_us": percentiles[49] * 1e6,
        "p99_us": percentiles[98] * 1e6,
        "seconds": time.perf_counter() - started,
        "requests": len(load.took_s),
        "failed": load.failed,
    }


def main() -> None:
    """Send the load and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    kinds = parser.add_subparsers(dest="kind", required=True)
    arrivals, batch = kinds.add_parser("open"), kinds.add_parser("batch")
    arrivals.add_argument("--rate", type=float, default=500.0)
    arrivals.add_argument("--seconds", type=float, default=4.0)
    batch.add_argument("--requests", type=int, default=2000)
    batch.add_argument("--in-flight", type=int, default=24)
    batch.add_argument("--mean-ms", type=float, default=40.0)
    batch.add_argument("--sigma", type=float, default=0.8)
    for kind in (arrivals, batch):
        kind.add_argument("--seed", type=int, default=0)
    sends: dict[str, Callable[..., None]] = {"open": arrive_at_random, "batch": send_batch}
    given = vars(parser.parse_args())
    port, send = given.pop("port"), sends[given.pop("kind")]
    gc.disable()  # a collection in the generator would be measured as the router's latency
    print(json.dumps(measured(port, lambda load: send(load, **given))))


if __name__ == "__main__":
    main()

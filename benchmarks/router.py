"""The router against others, as ratios within one run: speed, CPU, added latency, balance and memory.

python benchmarks/router.py [--rounds 5] [--seconds 3] [--connections 128] [--peers ours,nginx,vllm-router,verl-like,splice]
                            [--only throughput | large | latency | balance | memory] [--vllm-router BINARY] [--nginx BINARY]

- throughput: 1 KB chat requests by wrk on `--connections` connections: requests per second, CPU per request
- large:      256 KB bodies on 16 connections
- latency:    500 requests a second at random times; what the router adds to the median of asking a server itself
- balance:    2,000 requests that bring their own lognormal service time (mean 40 ms, sigma 0.8), 24 in flight, three servers of
              16 slots, one of them four times slower; how long the batch takes
- memory:     the most that was resident while 512 connections were busy

Contestants: ours (`python -m reward_loop.router`, its defaults), nginx (one worker, least_conn), vllm-router (Rust, round robin),
verl-like (FastAPI and aiohttp, as verl has it) and splice (bytes across, unread: the floor). All stay up, on the same core;
servers and load share another; rounds take turns, so that what else the machine does hits all; ratios are medians of each
round's. Where the load's core is full before a router's is, only CPU per request (of all threads) tells fast routers apart.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.peers.contestants import CONTESTANTS, Place, missing, reply_server
from benchmarks.peers.load import chat_request
from benchmarks.peers.processes import Measured
from benchmarks.peers.rounds import Rounds, Target, show

RATE = 500
SLOTS, SLOWER = 16, 4.0
MEMORY_CONNECTIONS = 512
LENGTHS = 64
"""Different lengths of bodies, so that no two requests in a row have the same head."""
WARM_UP_S = 1.0
LOAD = Path(__file__).resolve().parent / "peers" / "load.py"

console = Console(width=None if sys.stdout.isatty() else 150)


@dataclass(frozen=True, slots=True)
class Bench:
    """What all measurements need: how often, how long, where, who."""

    rounds: int
    seconds: float
    connections: int
    peers: tuple[str, ...]
    place: Place
    load_core: int

    def servers(self, stack: ExitStack, *options: tuple[str, ...]) -> Place:
        """Start one server of fixed replies per set of options; return the place with them."""
        started = [
            stack.enter_context(reply_server(f"server{number}", self.load_core, self.place.directory, *each))
            for number, each in enumerate(options)
        ]
        return Place(self.place.core, self.place.directory, tuple(started), self.place.nginx, self.place.vllm_router)

    def routers(self, stack: ExitStack, place: Place) -> list[Measured]:
        """Start the contestants."""
        return [stack.enter_context(CONTESTANTS[name](place)) for name in self.peers]

    def loaded(self, server: Measured, *options: str) -> dict[str, float]:
        """Run the load generator of `peers/load.py`."""
        answer = self._run(sys.executable, str(LOAD), str(server.port), *options)
        return _faultless(server, answer)

    def wrk(self, router: Measured, connections: int, seconds: float, filler: int) -> dict[str, float]:
        """Send POSTs by wrk as fast as they are answered; refuse errors."""
        path, _, body = chat_request(filler).decode().partition(" ")[2].partition("\r\n\r\n")
        script = self.place.directory / f"wrk-{filler}.lua"
        script.write_text(_WRK.format(body=body, path=path.split()[0], lengths=LENGTHS), encoding="utf-8")
        options = ["-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", "20s", "-s", str(script)]
        answer = self._run("wrk", *options, router.url)
        return _faultless(router, answer)

    def _run(self, *command: str) -> dict[str, float]:
        pinned = ["taskset", "-c", str(self.load_core), *command]
        done = subprocess.run(pinned, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return found


def _faultless(router: Measured, answer: dict[str, float]) -> dict[str, float]:
    """Return the answer; RuntimeError where requests failed, for then its figures mean nothing."""
    if answer["failed"] or not answer["requests"]:
        raise RuntimeError(f"{router.name} failed {answer['failed']:.0f} of {answer['requests']:.0f} requests")
    return answer


def saturate(bench: Bench, title: str, connections: int, filler: int, targets: list[Target]) -> bool:
    """Compare requests per second and CPU per request at full load."""
    shown = Rounds(title)
    with ExitStack() as stack:
        place = bench.servers(stack, (), ())
        routers = bench.routers(stack, place)
        for router in routers:
            bench.wrk(router, connections, WARM_UP_S, filler)
        for _ in range(bench.rounds):
            for router in routers:
                before = router.cpu_us()
                answer = bench.wrk(router, connections, bench.seconds, filler)
                cpu_us = (router.cpu_us() - before) / answer["requests"]
                rate = answer["requests"] / answer["seconds"]
                shown.add(router.name, **{"requests/s": rate, "CPU us/request": cpu_us, "p50 ms": answer["p50_us"] / 1e3})
    return show(console, shown, targets)


def measure_throughput(bench: Bench) -> bool:
    """1 KB there, 1 KB back."""
    targets = [
        Target("requests/s", 0.9, at_least=True, other="nginx"),
        Target("requests/s", 2.0, at_least=True, other="vllm-router"),
        Target("requests/s", 12.0, at_least=True, other="verl-like"),
        Target("CPU us/request", 1.2, other="nginx"),
    ]
    return saturate(bench, f"throughput: 1 KB, {bench.connections} connections", bench.connections, 900, targets)


def measure_large(bench: Bench) -> bool:
    """256 KB there, 1 KB back."""
    return saturate(bench, "large: 256 KB bodies, 16 connections", 16, 1 << 18, [Target("CPU us/request", 1.2, other="nginx")])


def measure_latency(bench: Bench) -> bool:
    """What a router adds to the latency of a server that is asked itself."""
    shown = Rounds(f"latency: {RATE} requests/s at random times")
    with ExitStack() as stack:
        place = bench.servers(stack, (), ())
        routers = bench.routers(stack, place)
        for number in range(-1, bench.rounds):  # the first one warms up
            options = ("open", "--rate", str(RATE), "--seconds", str(bench.seconds), "--seed", str(number))
            direct = bench.loaded(place.servers[0], *options)
            for router in routers:
                before = router.cpu_us()
                answer = bench.loaded(router, *options)
                cpu_us = (router.cpu_us() - before) / answer["requests"]
                if number >= 0:
                    added = {f"added {part} us": answer[f"{part}_us"] - direct[f"{part}_us"] for part in ("p50", "p99")}
                    shown.add(router.name, **added, **{"CPU us/request": cpu_us})
    return show(console, shown, [Target("added p50 us", 1.0, other="nginx")])


def measure_balance(bench: Bench) -> bool:
    """How long a batch takes where one of three servers is slower."""
    shown = Rounds(f"balance: 2,000 requests, 24 in flight, one of three servers {SLOWER:.0f} times slower")
    with ExitStack() as stack:
        slots = ("--slots", str(SLOTS))
        place = bench.servers(stack, slots, slots, (*slots, "--slowness", str(SLOWER)))
        routers = [router for router in bench.routers(stack, place) if router.name != "splice"]  # balances connections only
        for number in range(bench.rounds):
            for router in routers:
                answer = bench.loaded(router, "batch", "--seed", str(number))
                shown.add(router.name, **{"makespan s": answer["seconds"], "p99 ms": answer["p99_us"] / 1e3})
    return show(console, shown, [Target("makespan s", 0.85, other="nginx")])


def measure_memory(bench: Bench) -> bool:
    """What is resident while many connections are busy."""
    shown = Rounds(f"memory: {MEMORY_CONNECTIONS} connections")
    with ExitStack() as stack:
        place = bench.servers(stack, (), ())
        for router in bench.routers(stack, place):
            sizes: list[tuple[float, float]] = []
            ended = threading.Event()

            def watch(
                router: Measured = router, sizes: list[tuple[float, float]] = sizes, ended: threading.Event = ended
            ) -> None:
                while not ended.wait(0.1):
                    sizes.append(router.memory_mib())

            watcher = threading.Thread(target=watch)
            watcher.start()
            try:
                bench.wrk(router, MEMORY_CONNECTIONS, bench.seconds, 900)
            finally:
                ended.set()
                watcher.join()
            resident, proportional = map(max, zip(*sizes, strict=True))
            shown.add(router.name, **{"RSS MiB": resident, "PSS MiB": proportional})
    return show(console, shown, [Target("RSS MiB", 64.0)])


PARTS: dict[str, Callable[[Bench], bool]] = {
    "throughput": measure_throughput,
    "large": measure_large,
    "latency": measure_latency,
    "balance": measure_balance,
    "memory": measure_memory,
}


def parsed() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", type=int, default=128)
    parser.add_argument("--peers", type=lambda names: names.split(","), default=list(CONTESTANTS))
    parser.add_argument("--only", choices=PARTS, action="append")
    parser.add_argument("--nginx", default=shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin"))
    parser.add_argument("--vllm-router", default=shutil.which("vllm-router"))
    given = parser.parse_args()
    if unknown := set(given.peers) - CONTESTANTS.keys():
        parser.error(f"--peers: {', '.join(sorted(unknown))} not known; there are {', '.join(CONTESTANTS)}")
    return given


def main() -> int:
    """Run the benchmark; the exit code says whether the targets were met."""
    given = parsed()
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2 or shutil.which("wrk") is None:
        console.print(f"this needs two cores (found {len(cores)}) and wrk (Debian package wrk)", style="bold red")
        return 2
    with tempfile.TemporaryDirectory() as directory:
        place = Place(cores[1], Path(directory), (), given.nginx, given.vllm_router)
        peers: list[str] = []
        for name in given.peers:
            if reason := missing(name, place):
                console.print(f"skipped: {reason}", style="yellow")
            else:
                peers.append(name)
        bench = Bench(given.rounds, given.seconds, given.connections, tuple(peers), place, cores[0])
        met = [PARTS[name](bench) for name in given.only or PARTS]
    return 0 if all(met) else 1


_WRK = """
wrk.method = "POST"
wrk.path = "{path}"
wrk.headers["Content-Type"] = "application/json"
local requests = {{}}
function init()
  for number = 1, {lengths} do
    requests[number] = wrk.format(nil, nil, nil, ([[{body}]]):gsub("xx", "x" .. ("x"):rep(number), 1))
  end
end
local number = 0
function request()
  number = number % {lengths} + 1
  return requests[number]
end
function done(summary, latency, requests)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  io.write(string.format('\\n{{"requests": %d, "seconds": %f, "failed": %d, "p50_us": %f, "p99_us": %f}}\\n',
    summary.requests, summary.duration / 1e6, failed, latency:percentile(50), latency:percentile(99)))
end
"""

if __name__ == "__main__":
    raise SystemExit(main())

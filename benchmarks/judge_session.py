"""What one MCP session carries: 64 judge calls that take 200 ms each, at once, by each transport.

python benchmarks/judge_session.py [--rounds 7] [--calls 64] [--delay-ms 200]

The judge is a server of the MCP SDK in a process of its own (tests/rubrics/judges/mcp_server.py), asked through `JudgeServices`.
Target: all calls end within twice the time of one. The connection is opened before.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from reward_loop.rubrics.judges import JudgeServices  # noqa: E402
from tests.rubrics.judges.processes import STDIO, free_port, mcp_server  # noqa: E402


async def timed(services: JudgeServices, name: str, calls: int, delay_s: float) -> float:
    """Return the seconds that all calls took; each must have its own answer."""
    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(services.call_tool(name, text=f"a {n}", delay_s=delay_s)) for n in range(calls)]
    took = time.perf_counter() - began
    assert [task.result()["score"] for task in tasks] == list(range(calls))
    return took


async def measure(arguments: argparse.Namespace) -> bool:
    """Print the median of each transport; return whether all met the target."""
    port, delay_s = free_port(), arguments.delay_ms / 1000
    common: dict[str, Any] = {"tool": "judge_slowly", "max_concurrency": arguments.calls}
    settings = {
        "http": {"type": "mcp", "endpoint": f"http://127.0.0.1:{port}", **common},
        "stdio": {"type": "stdio", "command": STDIO, "env": {"PYTHONPATH": str(ROOT)}, **common},
    }
    met = True
    with mcp_server(port):
        began = time.perf_counter()
        async with JudgeServices(settings) as services:
            print(f"both servers started and connected in {time.perf_counter() - began:.2f} s")
            for name in settings:
                rounds = [await timed(services, name, arguments.calls, delay_s) for _ in range(arguments.rounds + 1)][1:]
                median, spread = statistics.median(rounds), f"{min(rounds):.3f} to {max(rounds):.3f}"
                met &= median < 2 * delay_s
                print(f"{name:6} {arguments.calls} calls of {delay_s:.3f} s: {median:.3f} s ({spread}), target {2 * delay_s:.3f}")
    return met


def main() -> int:
    """Run the benchmark; the exit code says whether the target was met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--calls", type=int, default=64)
    parser.add_argument("--delay-ms", type=float, default=200.0)
    return 0 if uvloop.run(measure(parser.parse_args())) else 1


if __name__ == "__main__":
    sys.exit(main())

"""A worker of its own process that shares a configuration: `python -m tests.rubrics.config_peer PORT [AUDIT]`.

It says "serves VERSION TASK" or "follows VERSION TASK" once it has settled and after every change, TASK being the weight of task.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from reward_loop.rubrics.config_share import ConfigShare
from tests.rubrics.live import live_config, weights_of


async def main(port: int, audit: Path | None) -> None:
    live = live_config()
    loop, changed = asyncio.get_running_loop(), asyncio.Event()
    async with ConfigShare(live, port=port, audit=audit) as share:
        live.watch(lambda: loop.call_soon_threadsafe(changed.set))
        while True:
            role = "serves" if share.serves else "follows"
            print(role, live.latest_version, weights_of(live.pending)["task"], flush=True)  # noqa: T201
            await changed.wait()
            changed.clear()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None))

"""A process that shares a limit with the tests: `python -m tests.limits.peer ADDRESS LIMITS COMMAND`.

It says "ready" and waits for a line before it begins. COMMAND is one of

    hold N     asks for N requests, says "held" for each that goes, and keeps them until it is killed
    load N     lets N tasks ask again and again until the server is gone, then says how many requests went
    serve      takes and gives back one request through a configured address, says "served", and waits to be killed
"""

from __future__ import annotations

import asyncio
import sys

from reward_loop.config import RateLimitConfig
from reward_loop.errors import RewardServerError
from reward_loop.limits.client import SharedLimiter, open_limiter


def say(word: str) -> None:
    print(word, flush=True)  # noqa: T201


async def hold(address: str, limits: RateLimitConfig, number: int) -> None:
    limiter = SharedLimiter(limits, name="job", address=address)

    async def one() -> None:
        async with limiter.reserve():
            say("held")
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(number):
            tasks.create_task(one())


async def load(address: str, limits: RateLimitConfig, number: int) -> int:
    limiter = SharedLimiter(limits, name="job", address=address, patience_s=0.0)
    went = 0

    async def one() -> None:
        nonlocal went
        while True:
            try:
                async with limiter.reserve():
                    went += 1
            except RewardServerError:
                return

    async with asyncio.TaskGroup() as tasks:
        for _ in range(number):
            tasks.create_task(one())
    await limiter.close()
    return went


async def serve(address: str, limits: RateLimitConfig) -> None:
    limiter = open_limiter(limits.model_copy(update={"address": address}), name="job")
    async with limiter.reserve():
        say("served")
    await asyncio.Event().wait()


def main() -> None:
    address, settings, command, *arguments = sys.argv[1:]
    limits = RateLimitConfig.model_validate_json(settings)
    say("ready")
    sys.stdin.readline()
    if command == "hold":
        asyncio.run(hold(address, limits, int(arguments[0])))
    elif command == "load":
        say(str(asyncio.run(load(address, limits, int(arguments[0])))))
    else:
        asyncio.run(serve(address, limits))


if __name__ == "__main__":
    main()

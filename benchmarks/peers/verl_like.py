"""A router built the way verl builds its own: FastAPI in front, one aiohttp session behind, JSON decoded and encoded both ways.

python benchmarks/peers/verl_like.py PORT URL…
"""

from __future__ import annotations

import argparse
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import uvicorn
from fastapi import FastAPI, Request


def build(urls: list[str]) -> FastAPI:
    """Return the application: the server with the least in flight gets the request."""
    in_flight = dict.fromkeys(urls, 0)
    sessions: list[aiohttp.ClientSession] = []

    @asynccontextmanager
    async def session_of(app: FastAPI) -> AsyncGenerator[None]:
        connector = aiohttp.TCPConnector(limit=1024, limit_per_host=256)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=None)) as session:
            sessions.append(session)
            yield

    app = FastAPI(lifespan=session_of)

    async def forward(request: Request, path: str) -> Any:
        payload = await request.json() if request.method == "POST" else None
        url = min(in_flight, key=in_flight.__getitem__)
        in_flight[url] += 1
        try:
            async with sessions[0].request(request.method, f"{url}/{path}", json=payload) as reply:
                reply.raise_for_status()
                return await reply.json()
        finally:
            in_flight[url] -= 1

    app.add_api_route("/{path:path}", forward, methods=["GET", "POST"])
    return app


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("urls", nargs="+")
    arguments = parser.parse_args()
    uvicorn.run(build(arguments.urls), host="127.0.0.1", port=arguments.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()

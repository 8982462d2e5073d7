"""A judge that speaks the OpenAI protocol: it wants a key, counts tokens and now and then sends a caller away with 429.

Run it with the key in JUDGE_API_KEY; it prints its base URL, and tells at GET /counts what it has seen.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import time

from aiohttp import web

SENT_AWAY = (30, 90)
"""The requests, counted from 1, that get a 429."""
_PROBLEM = re.compile(r"Problem: (\d+) \* (\d+)\nAnswer: (.*)", re.DOTALL)


class Judge:
    """Judges answers to multiplications and keeps its counts."""

    def __init__(self, key: str) -> None:
        self._authorization = f"Bearer {key}"
        self._began = 0.0
        self.counts = {"requests": 0, "tokens": 0, "sent away": 0, "seconds": 0.0}

    async def complete(self, request: web.Request) -> web.Response:
        """Answer POST /v1/chat/completions."""
        if not hmac.compare_digest(request.headers.get("Authorization", ""), self._authorization):
            return web.json_response({"error": {"message": "no such key"}}, status=401)
        self._began = self._began or time.monotonic()
        self.counts["requests"] += 1
        self.counts["seconds"] = time.monotonic() - self._began
        if self.counts["requests"] in SENT_AWAY:
            self.counts["sent away"] += 1
            return web.json_response({"error": {"message": "busy"}}, status=429, headers={"Retry-After": "1"})
        question = (await request.json())["messages"][-1]["content"]
        reply = self._verdict(question)
        usage = {"prompt_tokens": len(question.split()), "completion_tokens": len(reply.split())}
        self.counts["tokens"] += sum(usage.values())
        choice = {"index": 0, "message": {"role": "assistant", "content": reply}, "finish_reason": "stop"}
        return web.json_response({"object": "chat.completion", "model": "judge", "choices": [choice], "usage": usage})

    async def tell(self, _: web.Request) -> web.Response:
        """Answer GET /counts."""
        return web.json_response(self.counts)

    def _verdict(self, question: str) -> str:
        match = _PROBLEM.search(question)
        if match is None or not (numbers := re.findall(r"\d+", match[3])):
            return f"I see no answer. By the way, you sent me {self._authorization}."  # judges do such things
        return f"VERDICT: {'right' if int(numbers[-1]) == int(match[1]) * int(match[2]) else 'wrong'}"


async def main() -> None:
    """Serve until killed."""
    judge = Judge(os.environ["JUDGE_API_KEY"])
    app = web.Application()
    app.add_routes([web.post("/v1/chat/completions", judge.complete), web.get("/counts", judge.tell)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())

"""A reward function that asks a judge elsewhere, by the OpenAI protocol."""

from __future__ import annotations

import re

from reward_loop.errors import RewardFunctionError
from reward_loop.scoring.chat import chat_complete

_INSTRUCTION = "You judge answers to arithmetic problems. Reply with one line: VERDICT: right, or VERDICT: wrong."
_VERDICT = re.compile(r"VERDICT: (right|wrong)")


async def judged(solution_str: str, extra_info: dict[str, str], base_url: str, model: str) -> dict[str, float | int]:
    """Return 1 for a right answer and 0 for a wrong one, as the judge sees it; `base_url` and `model` are `reward_kwargs`."""
    messages = [
        {"role": "system", "content": _INSTRUCTION},
        {"role": "user", "content": f"Problem: {extra_info['problem']}\nAnswer: {solution_str}"},
    ]
    reply = await chat_complete(messages, model=model, base_url=base_url, api_key_env="JUDGE_API_KEY", temperature=0.0)
    verdict = _VERDICT.search(reply.text)
    if verdict is None:  # the judge failed, which says nothing about the answer
        raise RewardFunctionError(f"the judge gave no verdict but {reply.text!r:.200}")
    return {"score": float(verdict[1] == "right"), "tokens": reply.usage.tokens if reply.usage else 0}

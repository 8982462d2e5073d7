"""One reward function of each kind. A function receives, by keyword, the arguments that its signature names."""

from __future__ import annotations

from typing import Any

import aiohttp

from reward_loop.errors import Unscorable


def exact(solution_str: str, ground_truth: str) -> float:
    """Synchronous: a number. It runs in a thread, so it may block."""
    return float(solution_str.strip() == ground_truth)


async def judged(solution_str: str, ground_truth: str, judge_url: str) -> float:
    """Asynchronous: awaits a judge; `judge_url` comes from `custom_reward_function.reward_kwargs`."""
    question = {"answer": solution_str, "truth": ground_truth}
    # A session per call is a connection per call; where there are thousands, keep one session per event loop.
    async with aiohttp.ClientSession() as session, session.post(judge_url, json=question) as response:
        response.raise_for_status()
        verdict = await response.json()
    if verdict["score"] is None:
        raise Unscorable("the judge could not decide")  # masked; neither an error nor a 0
    return float(verdict["score"])


def components(solution_str: str, ground_truth: str, extra_info: dict[str, Any]) -> dict[str, float]:
    """A dict: "score" is the reward, every other key becomes a column of extra info."""
    accuracy = float(ground_truth in solution_str)
    polite = float("please" in solution_str.lower())
    return {"score": accuracy + extra_info["politeness_weight"] * polite, "accuracy": accuracy, "polite": polite}


def per_token(response_ids: list[int], solution_str: str, ground_truth: str) -> list[float]:
    """A list, one reward per response token: -0.1 where a token repeats the one before, the verdict at the end."""
    rewards = [-0.1 * (token == before) for token, before in zip(response_ids, [None, *response_ids], strict=False)]
    rewards[-1] += float(ground_truth in solution_str)
    return rewards

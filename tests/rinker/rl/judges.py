"""Reward functions that a reward loop loads."""

from __future__ import annotations

import asyncio
from typing import Any


def copied(response_ids: list[int], ground_truth: list[int], extra_info: dict[str, Any]) -> dict[str, float]:
    """The share of the digits that were copied, as the environment gives it."""
    right = sum(said == digit for said, digit in zip(response_ids, ground_truth, strict=False))
    return {"score": right / len(ground_truth), "first": float(response_ids[:1] == ground_truth[:1])}


def picky(response_ids: list[int], ground_truth: list[int]) -> float | None:
    """Fails on some answers, and can't judge others."""
    if response_ids[0] % 3 == 0:
        raise ValueError("what is this")
    return None if response_ids[0] % 3 == 1 else 1.0


async def hanging(response_ids: list[int]) -> float:
    """Never answers for some."""
    if response_ids[0] % 2:
        await asyncio.Event().wait()
    return 0.5


def words(solution_str: str) -> float:
    """How many words there are."""
    return float(len(solution_str.split()))


def batch_copied(solution_strs: list[str], ground_truths: list[Any]) -> list[float]:
    """One of whole groups."""
    return [float(len(solution_strs)) for _ in ground_truths]

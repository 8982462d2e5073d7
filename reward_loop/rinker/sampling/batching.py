"""Which of the sequences that wait go into the next batch."""

from __future__ import annotations

from collections import deque

from reward_loop.rinker.sampling.job import Row
from reward_loop.rinker.sampling.settings import HFSamplerSettings


def next_batch(waiting: deque[Row], settings: HFSamplerSettings) -> list[Row]:
    """Take from the front what can run with the first: the same snapshot, and within the limits; the others keep their order.

    One that is too large for any batch runs alone.
    """
    taken: list[Row] = []
    left: deque[Row] = deque()
    prompts: set[int] = set()
    longest_prompt = longest_answer = 0
    while waiting:
        row = waiting.popleft()
        if not row.live:
            continue
        prompt = max(longest_prompt, len(row.job.prompt))
        answer = max(longest_answer, row.job.max_tokens)
        unique = len(prompts | {id(row.job)})
        full = (
            len(taken) >= settings.max_batch_sequences
            or (len(taken) + 1) * (prompt + answer) > settings.max_batch_tokens
            or (row.job.wants_prompt_scores and unique * prompt * row.job.profile.vocabulary > settings.max_prompt_logits)
        )
        if taken and (full or not _fit(taken[0], row)):
            left.append(row)
            continue
        taken.append(row)
        prompts.add(id(row.job))
        longest_prompt, longest_answer = prompt, answer
    waiting.extend(left)
    return taken


def _fit(first: Row, row: Row) -> bool:
    """Scores of prompts cost memory, so calls for them run among themselves."""
    return first.job.snapshot.id == row.job.snapshot.id and first.job.wants_prompt_scores == row.job.wants_prompt_scores

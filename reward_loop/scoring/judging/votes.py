"""Asking a judge several times, and what its votes come to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, Unpack

from reward_loop.errors import ConfigError, RewardServerError, Unscorable
from reward_loop.scoring.chat import Messages
from reward_loop.scoring.judging.asking import Judge, ask
from reward_loop.scoring.side_by_side import side_by_side

T = TypeVar("T", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Votes(Generic[T]):
    """The votes that could be read, how many could not, and the tokens used."""

    votes: Sequence[T]
    unreadable: int
    tokens: int

    @property
    def counts(self) -> Counter[T]:
        """How often each vote was given."""
        return Counter(self.votes)

    @property
    def agreement(self) -> float:
        """Share of the most frequent vote in those that could be read."""
        return max(self.counts.values()) / len(self.votes)

    @property
    def majority(self) -> T:
        """The most frequent vote; Unscorable where several are."""
        ranked = self.counts.most_common(2)
        if len(ranked) > 1 and ranked[0][1] == ranked[1][1]:
            raise Unscorable(
                f"the judge's votes are tied: {dict(self.counts)!r:.200}; ask for another number of votes, or take the mean"
            )
        return ranked[0][0]

    @property
    def mean(self) -> float:
        """The mean of votes that are numbers."""
        numbers: Sequence[Any] = self.votes
        return math.fsum(map(float, numbers)) / len(numbers)


async def k_votes(
    messages: Messages,
    *,
    k: int,
    read: Callable[[str], T | None],
    seed: int | None = None,
    spread: bool = False,
    sampling: Mapping[str, object] | None = None,
    **judge: Unpack[Judge],
) -> Votes[T]:
    """Return `k` votes of a judge that samples; `read` finds the vote in a text, or returns None where there is none.

    They are one request, whose prompt is read once; with `spread`, `k` requests that several servers share, with seeds from
    `seed` on. Raises RewardServerError unless more than half can be read, and what a request failed with.
    """
    if k < 1:
        raise ConfigError(f"k={k} votes can't be asked for; it must be at least 1")
    requests: list[dict[str, object]] = [{"n": k} if seed is None else {"n": k, "seed": seed}]
    if spread:
        requests = [{"seed": (seed or 0) + number} for number in range(k)]
    replies = await side_by_side([partial(ask, messages, fixed, sampling, **judge) for fixed in requests])
    texts = [choice.message.content for reply in replies for choice in reply.choices]
    votes = [vote for text in texts if text is not None and (vote := read(text)) is not None]
    if len(votes) * 2 <= k:
        raise RewardServerError(f"only {len(votes)} of {k} votes of the judge {replies[0].model} can be read: {texts!r:.1000}")
    return Votes(votes, k - len(votes), sum(reply.tokens for reply in replies))

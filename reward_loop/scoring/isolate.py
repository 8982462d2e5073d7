"""How a bad input of a batch is found, so that it fails alone.

Invariant: every input gets a result or the server's own error; an input that the server takes is never lost to another's fault.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from reward_loop.errors import RewardServerError

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A server refused a batch because of inputs in it: those that it `named` by index, each with why, or it did not say."""

    error: RewardServerError
    named: Mapping[int, RewardServerError] = field(default_factory=dict[int, RewardServerError])


Send: TypeAlias = Callable[[Sequence[I]], Awaitable[Sequence[R] | Refusal]]


async def isolated(inputs: Sequence[I], send: Send[I, R]) -> list[R | RewardServerError]:
    """Return for each input what the server said of it, in order, sending what is left without the bad ones again.

    A refusal that names bad inputs costs one more request; one that doesn't, about twice the logarithm of the batch. A
    RewardServerError that `send` raises is that of every input that was sent.
    """
    results: dict[int, R | RewardServerError] = {}
    groups = [list(range(len(inputs)))]
    while groups:
        group = groups.pop()
        try:
            answer = await send([inputs[at] for at in group])
        except RewardServerError as error:
            results.update(dict.fromkeys(group, error))
            continue
        if not isinstance(answer, Refusal):
            results.update(zip(group, answer, strict=True))
            continue
        bad = {group[at]: error for at, error in answer.named.items() if 0 <= at < len(group)}
        if not bad and len(group) == 1:
            bad = {group[0]: answer.error}
        results.update(bad)
        rest = [at for at in group if at not in bad]
        half = 0 if bad else len(rest) // 2
        groups += [part for part in (rest[half:], rest[:half]) if part]
    return [results[at] for at in range(len(inputs))]

"""Comparing two answers in both orders, since judges prefer the one that they read first (arXiv:2306.05685)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Unpack

from reward_loop.errors import Unscorable
from reward_loop.scoring.chat import Messages
from reward_loop.scoring.judging.asking import Judge
from reward_loop.scoring.judging.verdict import choice_verdict
from reward_loop.scoring.side_by_side import side_by_side

Winner = Literal["first", "second", "tie"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Which of two answers is better, whether both orders agreed on it, what each order said, and the tokens used."""

    winner: Winner
    agreed: bool
    orders: tuple[Winner, Winner]
    tokens: int

    @property
    def score(self) -> float:
        """Reward of the first answer: 1, 0, or 0.5 for a tie."""
        return {"first": 1.0, "second": 0.0, "tie": 0.5}[self.winner]


async def compare_both_orders(
    first: str,
    second: str,
    prompt: Callable[[str, str], Messages],
    *,
    labels: tuple[str, str] | tuple[str, str, str] = ("A", "B"),
    disagreement: Literal["tie", "unscorable"] = "tie",
    sampling: Mapping[str, object] | None = None,
    **judge: Unpack[Judge],
) -> Comparison:
    """Return the better of two answers; `prompt(a, b)` is the conversation that shows `a` as the first label, `b` as the second.

    The judge writes one of `labels`; a third one stands for a tie. Orders that disagree are a tie, or raise Unscorable.
    """

    async def winner(a: str, b: str, names: tuple[Winner, Winner]) -> tuple[Winner, int]:
        verdict = await choice_verdict(prompt(a, b), labels, sampling=sampling, **judge)
        by_label: dict[str, Winner] = dict(zip(labels, (*names, "tie"), strict=False))
        return by_label[verdict.value], verdict.tokens

    (one, tokens), (other, more) = await side_by_side(
        [lambda: winner(first, second, ("first", "second")), lambda: winner(second, first, ("second", "first"))]
    )
    if one != other and disagreement == "unscorable":
        raise Unscorable(f"the judge prefers the {one} answer, and in the other order the {other}")
    return Comparison(one if one == other else "tie", one == other, (one, other), tokens + more)

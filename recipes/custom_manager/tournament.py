"""A reward function for the manager `group`: it sees all samples of one prompt and lets each play against each other one."""

from __future__ import annotations

from collections.abc import Sequence


def tournament(solution_strs: Sequence[str], ground_truths: Sequence[str]) -> list[float | None]:
    """Return each sample's share of won games; None (it can't be judged) for one that has nobody to play against."""
    players = list(zip(solution_strs, ground_truths, strict=True))
    strengths = [_strength(*player) for player in players]
    return [_share_won(mine, [*strengths[:place], *strengths[place + 1 :]]) for place, mine in enumerate(strengths)]


def _strength(solution_str: str, ground_truth: str) -> tuple[bool, int]:
    """A right answer beats a wrong one; of two that are equally right the shorter wins."""
    return ground_truth in solution_str.split(), -len(solution_str)


def _share_won(mine: tuple[bool, int], others: list[tuple[bool, int]]) -> float | None:
    if not others:
        return None
    return sum(1.0 if mine > other else 0.5 if mine == other else 0.0 for other in others) / len(others)

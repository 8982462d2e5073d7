"""What several scores of one judge come to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from reward_loop.errors import JudgeError
from reward_loop.rubrics.score import Score
from reward_loop.scoring.judging.votes import Votes


def mean_of(scores: Sequence[float | None], texts: Sequence[str], extra: Mapping[str, Any]) -> Score:
    """Return the mean of the scores that could be read (those that are not None), and in the extra how far they agree.

    Raises JudgeError unless more than half could be read.
    """
    read = [score for score in scores if score is not None]
    if len(read) * 2 <= len(scores):
        raise JudgeError(f"only {len(read)} of {len(scores)} votes of the judge can be read: {list(texts)!r:.1000}")
    if len(scores) == 1:
        return Score(read[0], extra)
    votes = Votes(read, len(scores) - len(read), 0)
    agreed = {"votes": read, "agreement": votes.agreement, "unreadable": votes.unreadable}
    return Score(math.fsum(read) / len(read), {**extra, **agreed})

"""What a reward server answers to POST /score, and which input it means when it refuses.

Invariant: what passes is one finite score per input, in the order of the inputs, whatever the order of the reply.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from reward_loop.errors import RewardServerError
from reward_loop.scoring.isolate import Refusal
from reward_loop.scoring.reward_client import Score
from reward_loop.scoring.transport import SHOWN, Reply, failure, misfit

_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]

_ABOUT_THE_INPUT = {400, 413, 422}


class _Datum(BaseModel):
    index: Annotated[int, Field(strict=True)]
    score: _Number | list[_Number] | list[list[_Number]]


class ScoreReply(BaseModel):
    """The body of a reply with status 200."""

    data: list[_Datum]
    model: str | None = None
    usage: dict[str, Any] | None = None

    def scores(self) -> list[Score]:
        """The scores by the index of their input."""
        return [datum.score for datum in sorted(self.data, key=lambda datum: datum.index)]


class _Fault(BaseModel):
    index: Annotated[int, Field(strict=True)]
    message: str


class _Error(BaseModel):
    message: str = ""
    index: Annotated[int, Field(strict=True)] | None = None
    inputs: list[_Fault] = []


class _Refused(BaseModel):
    error: _Error


def parsed(reply: Reply, inputs: Sequence[object]) -> ScoreReply | Refusal:
    """Return the scores in a reply, or what it refused and why.

    Raises the error of the tree that the reply stands for where it is about no single input, and RewardServerError for scores
    that are too few, too many or no finite numbers.
    """
    if reply.status != 200:
        error = failure(reply)
        named = {fault.index: _alone(error, reply, fault) for fault in _faults(reply.body)}
        if not named and reply.status not in _ABOUT_THE_INPUT:
            raise error
        return Refusal(error, named)
    try:
        scored = ScoreReply.model_validate_json(reply.body)
    except ValidationError as error:
        raise RewardServerError(f"{reply.url} sent no scores ({misfit(error)}): {reply.body[:SHOWN]}") from None
    if sorted(datum.index for datum in scored.data) != list(range(len(inputs))):
        indices = [datum.index for datum in scored.data]
        raise RewardServerError(f"{reply.url} was asked for {len(inputs)} scores and sent those of inputs {indices!s:.200}")
    return scored


def _faults(body: str) -> list[_Fault]:
    """Return what a refusal says of single inputs: of each bad one, or of one."""
    try:
        error = _Refused.model_validate_json(body).error
    except ValidationError:
        return []
    if error.inputs:
        return [_Fault(index=fault.index, message=f"the input {fault.message}") for fault in error.inputs]
    return [] if error.index is None else [_Fault(index=error.index, message=error.message)]


def _alone(error: RewardServerError, reply: Reply, fault: _Fault) -> RewardServerError:
    """Return the error of one input, which says nothing of the others that travelled with it."""
    mine = copy.copy(error)
    mine.message = f"{reply.url} answered {reply.status}: {fault.message[:SHOWN]}"
    return mine

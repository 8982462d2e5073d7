"""What a reward model is given to judge of a rollout: text, or token ids."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import TypeAlias

from reward_loop.credit.rollout import RolloutLike, StepLike
from reward_loop.errors import DataError, RewardFunctionError, RewardLoopError, Unscorable
from reward_loop.outcome import describe
from reward_loop.scoring.reward_client import Input

Rendered: TypeAlias = str | list[int] | RewardLoopError
"""An input that can be sent, or why there is none."""


def conversation(rollout: RolloutLike) -> Input:
    """Return all that was observed and done, in order: texts a line each, token ids one after another.

    Raises Unscorable for a rollout without steps, DataError for observations that are neither.
    """
    return _joined(part for step in rollout.steps for part in (step.prev_obs, step.action))


def step_input(_rollout: RolloutLike, step: StepLike) -> Input:
    """Return what was observed before a step and what was done: two lines of text, or token ids (seed 000, 6.5)."""
    return _joined((step.prev_obs, step.action))


def prepared(render: Callable[[], Input | None]) -> Rendered:
    """Return what `render` makes, fit to be sent, or its error; None from it means Unscorable."""
    try:
        made = render()
        if made is None:
            return Unscorable("to_text returned None: this can't be judged")
        return made if isinstance(made, str) else list(map(operator.index, made))
    except RewardLoopError as error:
        return error
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything; it costs its own rollout only
        return RewardFunctionError(describe(error))


def _joined(parts: Iterable[object]) -> Input:
    given = [part for part in parts if part is not None and not (isinstance(part, str | list | tuple) and not part)]
    if not given:
        raise Unscorable("there is nothing to judge: no steps, or only empty ones")
    texts = [part for part in given if isinstance(part, str)]
    if len(texts) == len(given):
        return "\n".join(texts)
    rows = [part for part in given if isinstance(part, list | tuple)]
    tokens = [token for row in rows for token in row]
    if len(rows) == len(given) and all(type(token) is int for token in tokens):
        return tokens
    raise DataError(f"observations and actions must be text, or token ids; they are {given!r:.200}: give the scorer a to_text")

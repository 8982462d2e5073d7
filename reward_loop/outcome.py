"""How the scoring of one sample ended, and what a failed sample is worth.

`Reward` is what a reward manager obtained; `Outcome` adds the cases in which there is none. Invariants: a reward is finite,
also as the float32 that the trainer gets; a failure is an `Outcome` with a status and a message, never a reward of 0; only
`ErrorPolicy` turns one into a number.
"""

from __future__ import annotations

import math
import sysconfig
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from reward_loop.errors import InvalidReward, RewardFunctionError, RewardLoopError, RewardTimeout, Unscorable

Status = Literal["ok", "error", "timeout", "unscorable"]

FAILED: frozenset[Status] = frozenset({"error", "timeout"})
"""The statuses to which the error policy applies."""

STATUS_KEY, MESSAGE_KEY, MASK_KEY = "reward_status", "reward_message", "reward_mask"
RESERVED_KEYS = frozenset({STATUS_KEY, MESSAGE_KEY, MASK_KEY})
_NAMED_FAILURES = 10
_LARGEST = 3.4028234663852886e38  # of float32
_NOT_THE_USERS = (str(Path(__file__).parent), *map(sysconfig.get_path, ("stdlib", "purelib", "platlib")), "<frozen")


@dataclass(frozen=True, slots=True)
class Reward:
    """The reward of one sample: a finite number, or one per response token (`value` is then their sum)."""

    value: float
    extra: dict[str, Any] = field(default_factory=dict)
    tokens: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        finite(self.value)  # again, because a manager may have reshaped it

    def plus(self, amount: float, **extra: object) -> Reward:
        """Return the reward raised by `amount` (at the last token, for per-token rewards), with more extra info."""
        tokens = self.tokens and (*self.tokens[:-1], self.tokens[-1] + amount)
        return replace(self, value=self.value + amount, tokens=tokens, extra={**self.extra, **extra})

    @property
    def score(self) -> float | list[float]:
        """The number, or the list of per-token rewards."""
        return self.value if self.tokens is None else list(self.tokens)

    def as_result(self) -> dict[str, Any]:
        """Return it in the form that `RewardManagerBase.run_single` promises."""
        return {"reward_score": self.score, "reward_extra_info": self.extra}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the scoring of one sample ended; `reward` is None unless `status` is "ok"; `seconds` is the time it took."""

    status: Status
    reward: Reward | None
    message: str = ""
    seconds: float = 0.0

    @classmethod
    def from_error(cls, error: BaseException, seconds: float) -> Outcome:
        """Return the outcome of a sample whose scoring raised `error`."""
        status: Status = "error"
        if isinstance(error, Unscorable):
            status = "unscorable"
        elif isinstance(error, RewardTimeout | TimeoutError):
            status = "timeout"
        return cls(status, None, describe(error), seconds)

    @property
    def failed(self) -> bool:
        """Whether the error policy applies (an unscorable sample has not failed)."""
        return self.status in FAILED


def describe(error: BaseException) -> str:
    """Return one line: the error's class and text, and for foreign errors the innermost line of the user's own code."""
    if type(error) is RewardFunctionError:  # it carries the description of an error that could not come itself
        return " ".join(error.message.split())
    text = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    if isinstance(error, RewardLoopError) or not (frames := traceback.extract_tb(error.__traceback__)):
        return text
    frame = ([frame for frame in frames if not frame.filename.startswith(_NOT_THE_USERS)] or frames)[-1]
    return f"{text} ({frame.filename}:{frame.lineno} in {frame.name})"


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """What a failed sample is worth: nothing (`kind` "raise": the batch fails), masked 0, or a number of the user's."""

    kind: Literal["raise", "mask", "value"] = "raise"
    value: float = 0.0

    def substitute(self, status: str) -> tuple[float, bool]:
        """Return (score, whether it counts) of a sample that has no reward: it is unscorable, or it failed."""
        counts = status in FAILED and self.kind == "value"
        return (self.value if counts else 0.0), counts

    def result(self, outcome: Outcome) -> dict[str, Any]:
        """Return the sample's `reward_score` and `reward_extra_info`, with its status, message and mask."""
        score: float | list[float]
        if outcome.reward is None:
            score, counts = self.substitute(outcome.status)
        else:
            score, counts = outcome.reward.score, True
        report = {STATUS_KEY: outcome.status, MESSAGE_KEY: outcome.message, MASK_KEY: int(counts)}
        extra = outcome.reward.extra if outcome.reward else {}
        return {"reward_score": score, "reward_extra_info": {**extra, **report}}

    def check(self, outcomes: Sequence[Outcome], names: Sequence[str]) -> None:
        """Raise one error that names every failed sample, under the policy "raise"; it carries all outcomes."""
        if self.kind == "raise" and any(outcome.failed for outcome in outcomes):
            raise BatchFailed(_summary(outcomes, names), list(outcomes))


class BatchFailed(RewardFunctionError):
    """Some samples of a batch failed; every other one has ended, and `outcomes` holds all of them, in order."""

    def __init__(self, message: str, outcomes: list[Outcome]) -> None:
        super().__init__(message)
        self.outcomes = outcomes

    def __reduce__(self) -> tuple[type[BatchFailed], tuple[str, list[Outcome]]]:
        return type(self), (self.message, self.outcomes)


def _summary(outcomes: Sequence[Outcome], names: Sequence[str]) -> str:
    failures = [(name, outcome) for name, outcome in zip(names, outcomes, strict=True) if outcome.failed]
    lines = [f"  sample {name}: {outcome.status}: {outcome.message}" for name, outcome in failures[:_NAMED_FAILURES]]
    if len(failures) > _NAMED_FAILURES:
        lines.append(f"  and {len(failures) - _NAMED_FAILURES} more")
    remedy = "fix the reward function, or set reward_model.on_error to mask or value"
    return "\n".join([f"{len(failures)} of {len(outcomes)} samples failed; {remedy}", *lines])


def parse_reward(result: object, response_tokens: int | None) -> Reward:
    """Turn what a reward function returned into a `Reward`: a number, a dict with "score", or a list (one per token).

    Raises `Unscorable` for None, and `InvalidReward` for anything that is no finite reward, a list whose length is not
    `response_tokens` (when known), and reserved extra keys.
    """
    if isinstance(result, dict):
        if "score" not in result:
            raise InvalidReward(f'a dict from a reward function needs the key "score"; it has {list(result)}')
        return _reward_of(result["score"], dict(result), response_tokens)
    reward = _reward_of(result, {}, response_tokens)
    return reward if reward.tokens is not None else Reward(reward.value, {"acc": reward.value})


def parse_result(result: object, response_tokens: int | None) -> Reward:
    """Turn what a manager's `run_single` returned into a `Reward`; raises like `parse_reward`."""
    if not isinstance(result, Mapping) or "reward_score" not in result:
        raise InvalidReward(
            f'run_single must return {{"reward_score": …, "reward_extra_info": {{…}}}}; it returned {result!r:.200}'
        )
    extra = result.get("reward_extra_info")
    if extra is not None and not isinstance(extra, Mapping):
        raise InvalidReward(f"reward_extra_info must be a dict; it is {extra!r:.200}")
    return _reward_of(result["reward_score"], dict(extra or {}), response_tokens)


def _reward_of(score: object, extra: dict[str, Any], response_tokens: int | None) -> Reward:
    if type(score) is float or isinstance(score, int | float):
        return Reward(finite(score), _checked(extra))
    if score is None:
        raise Unscorable("the reward function returned None: this sample can't be judged")
    if (to_list := getattr(score, "tolist", None)) is not None:  # numpy and torch scalars and arrays
        score = to_list()
        if isinstance(score, int | float):
            return Reward(finite(score), _checked(extra))
    if not isinstance(score, list):
        raise InvalidReward(f"a reward is a finite number, a dict or a list of numbers per token; got {score!r:.200}")
    return _per_token(score, _checked(extra), response_tokens)


def _per_token(scores: list[Any], extra: dict[str, Any], response_tokens: int | None) -> Reward:
    if response_tokens is not None and len(scores) != response_tokens:
        raise InvalidReward(
            f"{len(scores)} per-token rewards for {response_tokens} response tokens; "
            "take the parameter response_ids to see the tokens"
        )
    tokens = tuple(finite(score) for score in scores)
    return Reward(math.fsum(tokens), extra, tokens)


def finite(score: object) -> float:
    """Return a number, also one of numpy or torch, as a float; raises InvalidReward unless float32 can hold it."""
    number = score if isinstance(score, int | float) else getattr(score, "tolist", lambda: score)()
    if not isinstance(number, int | float) or not -_LARGEST <= number <= _LARGEST:
        raise InvalidReward(f"a reward must be a finite number; got {score!r:.200}")
    return float(number)


def _checked(extra: dict[Any, Any]) -> dict[str, Any]:
    if not all(type(key) is str for key in extra):
        raise InvalidReward(f"extra-info keys must be text; they are {list(extra)!r:.200}")
    if extra and not RESERVED_KEYS.isdisjoint(extra):
        taken = sorted(RESERVED_KEYS & extra.keys())
        raise InvalidReward(f"extra-info keys {taken} are the reward loop's own; rename them in the reward function")
    return extra

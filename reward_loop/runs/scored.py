"""The form of a scored file: the input's fields, then what scoring adds. Beside it stands `OUTPUT.summary.json`."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from reward_loop.outcome import ErrorPolicy, Outcome, Reward
from reward_loop.runs.fields import Row
from reward_loop.runs.source import json_field

EXTRA_FIELD = "reward_extra_info"
OUTCOME_SCHEMA = pa.schema(
    [
        ("reward", pa.float64()),
        ("token_rewards", pa.list_(pa.float64())),
        ("reward_status", pa.string()),
        ("reward_message", pa.string()),
        ("reward_seconds", pa.float64()),
        json_field(EXTRA_FIELD),
    ]
)
"""The added fields as Parquet has them; `reward` is null where there is none, `reward_extra_info` is JSON."""
_MOST_BITS = 4096
_MOST_LEVELS = 100


def outcome_fields(outcome: Outcome, policy: ErrorPolicy) -> Row:
    """Return the added fields of one row, the extra info as an object; a failed sample has a reward only by `on_error.value`."""
    reward = outcome.reward or (Reward(policy.value) if outcome.failed and policy.kind == "value" else None)
    return {
        "reward": reward.value if reward else None,
        "token_rewards": list(reward.tokens) if reward and reward.tokens else None,
        "reward_status": outcome.status,
        "reward_message": outcome.message.encode(errors="backslashreplace").decode(),
        "reward_seconds": round(outcome.seconds, 6),
        EXTRA_FIELD: reward.extra if reward else {},
    }


def to_json(value: object) -> str:
    """Return strict JSON for whatever user code put into it: arrays as lists, other objects as text, NaN and inf as null."""
    try:
        text = json.dumps(value, default=_plain, allow_nan=False, ensure_ascii=False)
    except (ValueError, TypeError, RecursionError):
        text = json.dumps(_strict(value, ()), ensure_ascii=False)
    # Half a surrogate pair, as a response that was cut off may end with, is no UTF-8; escaped it is JSON.
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def _plain(value: object) -> object:
    """Return what stands for an object that JSON does not know."""
    try:
        to_list = getattr(value, "tolist", None)
        return str(value) if to_list is None else to_list()
    except Exception:  # noqa: BLE001 - an object of the user's may fail at anything; it must not end the run
        return f"<{type(value).__name__}>"


def _strict(value: Any, above: tuple[int, ...]) -> Any:
    """Return a value that `json.dumps` takes as it is; `above`: the ids of the containers that it lies in."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):  # Python refuses to write out the digits of a huge one
        return value if value.bit_length() < _MOST_BITS else hex(value)
    if value is None or isinstance(value, str):
        return value
    if id(value) in above or len(above) > _MOST_LEVELS:
        return "…"
    inside = (*above, id(value))
    if isinstance(value, Mapping):
        return {key if isinstance(key, str | int) else str(_plain(key)): _strict(held, inside) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(held, inside) for held in value]
    return _strict(_plain(value), inside)


@dataclass(slots=True)
class Tally:
    """Counts and rewards of some rows; tallies of parts of a run add up to the run's."""

    rows: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    rewards: int = 0
    reward_sum: float = 0.0
    reward_min: float = math.inf
    reward_max: float = -math.inf

    def add(self, outcome: Mapping[str, Any]) -> None:
        """Count one row's added fields."""
        self.rows += 1
        self.statuses[outcome["reward_status"]] += 1
        reward = outcome["reward"]
        if reward is not None:
            self.rewards += 1
            self.reward_sum += reward
            self.reward_min = min(self.reward_min, reward)
            self.reward_max = max(self.reward_max, reward)

    def merge(self, other: Tally) -> None:
        """Add another part's counts."""
        self.rows += other.rows
        self.statuses += other.statuses
        self.rewards += other.rewards
        self.reward_sum += other.reward_sum
        self.reward_min = min(self.reward_min, other.reward_min)
        self.reward_max = max(self.reward_max, other.reward_max)

    @property
    def mean(self) -> float | None:
        """The mean of the rewards that there are."""
        return self.reward_sum / self.rewards if self.rewards else None

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        some = bool(self.rewards)
        return {
            "rows": self.rows,
            "statuses": dict(self.statuses),
            "rewards": self.rewards,
            "reward_sum": self.reward_sum,
            "reward_min": self.reward_min if some else None,
            "reward_max": self.reward_max if some else None,
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Tally:
        """Undo `as_dict`."""
        tally = cls(plain["rows"], Counter(plain["statuses"]), plain["rewards"], plain["reward_sum"])
        if tally.rewards:
            tally.reward_min, tally.reward_max = plain["reward_min"], plain["reward_max"]
        return tally

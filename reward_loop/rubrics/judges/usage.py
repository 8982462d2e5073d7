"""What judges cost: calls, tokens and money, written into the ledgers that are open where a judge is asked.

Invariants: a reply is recorded before anybody reads it, so also when its answer can't be used; an answer from a cache costs
nothing; a ledger within another adds to both; threads may add to one ledger.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from reward_loop.config_base import Config

_Price = Annotated[float, Field(ge=0)]


@dataclass(frozen=True, slots=True)
class JudgeUsage:
    """Replies of judges, the tokens that their services counted, and what these cost (in the unit of the prices)."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0

    def __add__(self, other: JudgeUsage) -> JudgeUsage:
        return JudgeUsage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cost + other.cost,
        )

    def as_columns(self) -> dict[str, float]:
        """Return it as extra-info columns: `judge_calls`, `judge_prompt_tokens`, `judge_completion_tokens`, `judge_cost`."""
        return {
            "judge_calls": self.calls,
            "judge_prompt_tokens": self.prompt_tokens,
            "judge_completion_tokens": self.completion_tokens,
            "judge_cost": self.cost,
        }


class Prices(Config):
    """What a million tokens of a service cost, in any unit of money."""

    prompt: _Price = 0.0
    """A million tokens of prompts."""
    completion: _Price = 0.0
    """A million tokens that the judge writes."""

    def usage(self, prompt_tokens: int, completion_tokens: int) -> JudgeUsage:
        """Return the usage of one reply."""
        cost = (self.prompt * prompt_tokens + self.completion * completion_tokens) / 1e6
        return JudgeUsage(1, prompt_tokens, completion_tokens, cost)


class Ledger:
    """Sums up usage, in all and by judge."""

    def __init__(self, outer: Ledger | None = None) -> None:
        self._outer = outer
        self._lock = threading.Lock()
        self._by_judge: dict[str, JudgeUsage] = {}

    def add(self, judge: str, usage: JudgeUsage) -> None:
        """Add what a judge used, here and in the ledger around this one."""
        with self._lock:
            self._by_judge[judge] = self._by_judge.get(judge, JudgeUsage()) + usage
        if self._outer is not None:
            self._outer.add(judge, usage)

    @property
    def by_judge(self) -> dict[str, JudgeUsage]:
        """What each judge used so far."""
        with self._lock:
            return dict(self._by_judge)

    @property
    def total(self) -> JudgeUsage:
        """What all of them used so far."""
        return sum(self.by_judge.values(), JudgeUsage())


_ledger: ContextVar[Ledger | None] = ContextVar("ledger", default=None)


@contextmanager
def usage_recorded() -> Generator[Ledger]:
    """Open a ledger for the judges that are asked within the block, in its tasks too; a thread needs a copy of the context."""
    ledger = Ledger(_ledger.get())
    opened = _ledger.set(ledger)
    try:
        yield ledger
    finally:
        _ledger.reset(opened)


def record(judge: str, usage: JudgeUsage) -> None:
    """Add what a judge used to the ledger that is open here, if there is one."""
    ledger = _ledger.get()
    if ledger is not None:
        ledger.add(judge, usage)

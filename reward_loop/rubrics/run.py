"""One rubric's part in the scoring of one step.

Invariants: it gets an action and observation of its own; whatever it does comes to a score or to an error that bears its name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from reward_loop.deadline import parts_under_way, within
from reward_loop.errors import RewardLoopError, RewardTimeout, RubricError, Unscorable
from reward_loop.outcome import ErrorPolicy
from reward_loop.rubrics.failures import named
from reward_loop.rubrics.observation import Observation
from reward_loop.rubrics.rubric import Rubric, scores_below
from reward_loop.rubrics.scales import ScaleError
from reward_loop.rubrics.score import Score
from reward_loop.rubrics.step_copies import private_part, private_step, unchanged, unchanged_part

Phase = Literal["per_turn", "episode_end"]
Place = Literal["task", "inline", "thread"]
"""Where a rubric is called: in a task of its own as it is async, on the event loop, or in a thread."""


class Placing(Protocol):
    """A scale: it says where a score lies."""

    def place(self, score: float) -> float:
        """Return where a score lies on the scale."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A rubric in a composer, with what was said of it."""

    name: str
    rubric: Rubric
    phase: Phase
    scale: Placing
    policy: ErrorPolicy
    timeout_s: float | None
    place: Place
    follows: bool
    """Whether it follows the episode, so that it has to see every step of it."""
    owned: bool
    """Whether each episode needs an object of its own."""
    keys: frozenset[str] | None
    """All that it sees, besides the action's text: what the metadata holds under these keys; None: it sees the objects."""
    part: str
    """What it is called where a sample's deadline passes before it has ended."""


class Run:
    """Calls the rubric of `entry` once; unless it `counts`, only for it to see the step."""

    __slots__ = ("_given", "_own", "_part", "counts", "entry", "error", "extra", "mutated", "placed", "raw")

    def __init__(self, entry: Entry, action: Any, observation: Any, *, counts: bool) -> None:
        self.entry = entry
        self.counts = counts
        self._given = action, observation
        self._own: tuple[Any, Any] | None = None
        self._part: Observation | None = None
        self.raw = self.placed = 0.0
        self.extra: Mapping[str, Any] = {}
        self.error: RewardLoopError | None = None
        self.mutated = False

    @property
    def fatal(self) -> RewardLoopError | None:
        """The error with which it has failed, if the sample fails with it."""
        ends = self.entry.policy.kind == "raise" or isinstance(self.error, Unscorable)
        return self.error if ends and self.counts else None

    def attempt(self, copies: tuple[Any, Any] | None = None) -> Any:
        """Call the rubric and return its score, an awaitable of it, or what it raised.

        `copies` are those that an earlier run of the step has left as they were.
        """
        if (parts := parts_under_way()) is not None:
            parts.add(self.entry.part)
        try:
            action, observation = self._given
            keys = self.entry.keys
            if keys is None or self.entry.rubric.hooked:
                self._own = action, observation = copies or (private_step(action), private_step(observation))
            elif keys and (part := private_part(observation, keys)) is not None:
                self._part = observation = part
            return self.entry.rubric(action, observation)
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001 - user code may raise anything
            return error

    async def awaited(self, pending: Awaitable[Score]) -> Score | BaseException:
        """Return what an awaitable comes to within the rubric's time: its score, or what it raised."""
        timeout_s = self.entry.timeout_s
        try:
            return await (pending if timeout_s is None else within(pending, timeout_s))
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return error  # the rubric's own doing: nobody cancelled us
        except RewardTimeout as error:
            return error if timeout_s is None else self.late()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - as in `attempt`
            return error

    def late(self) -> RubricError:
        """Return the error of a rubric whose time is over."""
        late = RubricError(f"it did not end within {self.entry.timeout_s} s, its timeout_s", rubric=self.entry.name)
        late.__cause__ = RewardTimeout(f"not ended within {self.entry.timeout_s} s")
        return late

    def settle(self, outcome: object) -> None:
        """Take in the score that came of it, or the error."""
        self._ended()
        if self._own is not None or self._part is not None:
            self.mutated = self._has_written()
        if not isinstance(outcome, Score):
            self.fail(outcome)
            return
        self.raw = float(outcome)
        self.extra = {**outcome.extra, "components": below} if (below := scores_below(self.entry.rubric)) else outcome.extra
        try:
            self.placed = self.entry.scale.place(self.raw)
        except ScaleError as error:
            self.error = error

    def _has_written(self) -> bool:
        if self._part is not None:
            return not unchanged_part(self._given[1], self._part)
        return self._own is not None and not all(map(unchanged, self._given, self._own))

    def left(self, copies: tuple[Any, Any] | None) -> tuple[Any, Any] | None:
        """Return which copies the next run may have, of those that this one was offered or made.

        None that were written into, or that a rubric keeps which follows the episode.
        """
        if self._own is None:
            return copies
        return None if self.mutated or self.entry.owned else self._own

    def fail(self, error: object) -> None:
        """Take in that it failed; where its policy gives that a value, the value is what it scored."""
        self._ended()
        failed = error if isinstance(error, BaseException) else TypeError(f"a rubric returned {error!r:.200}")
        self.error = named(failed, self.entry.name)
        if self.entry.policy.kind == "value":
            self.raw = self.entry.policy.value
            self.placed = self.entry.scale.place(self.raw)

    def _ended(self) -> None:
        if (parts := parts_under_way()) is not None:
            parts.discard(self.entry.part)

    @property
    def scored(self) -> bool:
        """Whether it has a score: the rubric's, or the value of a failure."""
        return self.error is None or (self.entry.policy.kind == "value" and not isinstance(self.error, Unscorable))

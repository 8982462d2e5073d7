"""Many rubrics as one reward: normalised, weighted, summed (seed 004's RubricComposer).

Invariants: a rubric neither sees nor touches another one's action and observation; results don't depend on who ends first; the
weights of one evaluation are those at its start; a rubric that fails is never a 0 in the sum.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import math
from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Any, Self

from reward_loop.errors import RubricError
from reward_loop.isolation.threads import ThreadCrew
from reward_loop.rubrics.composed import Composed
from reward_loop.rubrics.concurrent_runs import finish_all, run_all, start_here
from reward_loop.rubrics.entries import Normalize, build_entries
from reward_loop.rubrics.evaluation import Steps, evaluated, recorded, settled
from reward_loop.rubrics.failures import OnRubricError
from reward_loop.rubrics.observation import is_done
from reward_loop.rubrics.rubric import Rubric
from reward_loop.rubrics.run import Entry, Phase, Run
from reward_loop.rubrics.running_scale import RunningScale
from reward_loop.rubrics.step import Step
from reward_loop.rubrics.weights import Aggregate, checked, checked_flag, checked_weight, contributions
from reward_loop.rubrics.workplace import Workplace

logger = logging.getLogger(__name__)


class RubricComposer:
    """Evaluates rubrics on one step of one episode at a time; `clone` it for each live episode, `reset` it between episodes.

    `rubrics` are what `as_rubric` takes, by name. A missing weight is 1; weights may be any finite numbers, and 0 keeps a rubric
    as a metric. `normalize` places each score between 0 and 1 on its declared scale (`scales`, else the rubric's own, else 0 to
    1), "running" on what was seen so far. `phases` say which rubrics wait for the end of the episode. `aggregate` "mean" divides
    by the sum of the absolute weights. `max_concurrency` bounds how many run at a time.
    """

    def __init__(
        self,
        rubrics: Mapping[str, Any],
        weights: Mapping[str, float] | None = None,
        normalize: Normalize = True,
        scales: Mapping[str, tuple[float, float]] | None = None,
        phases: Mapping[str, Phase] | None = None,
        aggregate: Aggregate = "sum",
        *,
        strict: bool = False,
        skip_zero_weight: bool = False,
        enabled: Mapping[str, bool] | None = None,
        on_error: Mapping[str, OnRubricError] | None = None,
        timeouts_s: Mapping[str, float] | None = None,
        max_concurrency: int | None = None,
        threads: ThreadCrew | None = None,
    ) -> None:
        if aggregate not in ("sum", "mean"):
            raise ValueError(f"aggregate is {aggregate!r}; it must be sum or mean")
        if max_concurrency is not None and max_concurrency < 1:
            raise ValueError(f"max_concurrency is {max_concurrency}; it must be 1 or more, or None for no bound")
        self._entries = build_entries(
            rubrics,
            normalize=normalize,
            strict=strict,
            scales=scales,
            phases=phases,
            on_error=on_error,
            timeouts_s=timeouts_s,
        )
        self._apart = any(entry.place == "task" or entry.timeout_s is not None for entry in self._entries)
        self._owned = any(entry.owned for entry in self._entries)
        self._aggregate: Aggregate = aggregate
        self._skip_zero_weight = skip_zero_weight
        self._max_concurrency = max_concurrency
        self._workplace = Workplace(threads)
        self._weights = {**dict.fromkeys(self._names, 1.0), **checked("weights", weights, self._names, checked_weight)}
        self._enabled = {**dict.fromkeys(self._names, True), **checked("enabled", enabled, self._names, checked_flag)}
        self._ended = False
        self._last: Composed | None = None

    @property
    def rubrics(self) -> dict[str, Rubric]:
        """The rubrics by name."""
        return {entry.name: entry.rubric for entry in self._entries}

    @property
    def weights(self) -> dict[str, float]:
        """The weights, in a dict of the caller's own."""
        return dict(self._weights)

    @property
    def enabled(self) -> dict[str, bool]:
        """Which rubrics are evaluated, in a dict of the caller's own."""
        return dict(self._enabled)

    @property
    def is_async(self) -> bool:
        """Whether an evaluation is to be awaited in any case: a rubric is declared async, or has a time-out."""
        return self._apart

    @property
    def last(self) -> Composed | None:
        """What the last evaluation gave; None before the first."""
        return self._last

    @property
    def last_raw(self) -> dict[str, float]:
        """The scores of the last evaluation as the rubrics gave them."""
        return dict(self._last.raw) if self._last else {}

    @property
    def last_contributions(self) -> dict[str, float]:
        """What each rubric added to the reward of the last evaluation."""
        return dict(self._last.contributions) if self._last else {}

    def compute(self, action: Any, observation: Any) -> tuple[float | None, dict[str, float]]:
        """Return (reward, components) of a step; RuntimeError where an event loop runs here and a rubric must be awaited.

        Rubrics run in this thread, one after the other; those that are async, or all if one has a time-out, on a loop elsewhere.
        """
        awaited = next((entry.name for entry in self._entries if entry.place == "task"), None)
        if awaited and _loop_runs():
            raise _must_be_awaited(awaited)
        if self._apart:
            composed = self._workplace.loop.run(self.evaluate(action, observation))
        else:
            step = self._begun(action, observation)
            if step.pending and _loop_runs():
                step.drop()
                raise _must_be_awaited(step.pending[0][0].entry.name)
            result = evaluated(self._finishing(step), step.given)
            composed = result if isinstance(result, Composed) else self._workplace.loop.run(result)
        return composed.reward, composed.components

    async def acompute(self, action: Any, observation: Any) -> tuple[float | None, dict[str, float]]:
        """Return (reward, components) of a step; all rubrics run at the same time."""
        composed = await self.evaluate(action, observation)
        return composed.reward, composed.components

    def begin(self, action: Any, observation: Any) -> Composed | Awaitable[Composed]:
        """As `evaluate`, in this thread as far as that goes: an awaitable is returned only where something must be awaited.

        For callers that are in a thread already, such as the reward loop's: this costs a fraction of what tasks do.
        """
        if self._apart:
            return self.evaluate(action, observation)
        step = self._begun(action, observation)
        return evaluated(self._finishing(step), step.given) if step.pending else self._compose(step)

    async def evaluate(self, action: Any, observation: Any) -> Composed:
        """Return all that rubrics say of a step.

        Raises RubricError, which names the rubric, for the first one that fails and whose `on_error` is "raise"; the others are
        then cancelled, and have ended. Raises Unscorable where a rubric says that this can't be judged.
        """
        step = self._due(action, observation)
        with recorded():
            await run_all(step.runs, self._workplace.threads, self._max_concurrency)
        return self._compose(step)

    def combine(self, components: Mapping[str, float]) -> float:
        """Return the reward that these components make, with the weights of now; KeyError for an unknown one."""
        scores = checked("components", components, self._weights, checked_weight)
        return math.fsum(contributions(scores, self._weights, self._aggregate).values())

    def update_weights(self, partial: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
        """Change some weights, all or none of them; return (old, new). KeyError, TypeError or ValueError for wrong ones."""
        old = self._weights
        self._weights = {**old, **checked("weights", partial, old, checked_weight)}
        return dict(old), dict(self._weights)

    def set_enabled(self, partial: Mapping[str, bool]) -> tuple[dict[str, bool], dict[str, bool]]:
        """Say which rubrics are evaluated, all or none of the changes; return (old, new)."""
        old = self._enabled
        self._enabled = {**old, **checked("enabled", partial, old, checked_flag)}
        return dict(old), dict(self._enabled)

    def reset(self) -> None:
        """Begin a new episode, in every rubric too."""
        for entry in self._entries:
            entry.rubric.reset()
        self._ended = False

    def clone(self) -> Self:
        """Return a composer for another episode, with the weights of now.

        Rubrics that keep an episode's state are copied (by their `clone` where they have one) and reset; all else is shared.
        """
        clone = object.__new__(type(self))
        clone.__dict__.update(self.__dict__)
        if self._owned:
            clone._entries = tuple(_for_another_episode(entry) if entry.owned else entry for entry in self._entries)
        clone._ended, clone._last = False, None
        return clone

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs: weights, what is enabled, scales that grow, and the rubrics' own state."""
        running = {entry.name: entry.scale.state for entry in self._entries if isinstance(entry.scale, RunningScale)}
        state = {entry.name: own for entry in self._entries if (own := entry.rubric.state_dict())}
        return {"weights": self.weights, "enabled": self.enabled, "running": running, "rubrics": state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned; KeyError for a rubric that there is not."""
        weights = checked("weights", state.get("weights"), self._weights, checked_weight)
        enabled = checked("enabled", state.get("enabled"), self._enabled, checked_flag)
        running = checked("running", state.get("running"), self._names, lambda _, ends: ends)
        rubrics = checked("rubrics", state.get("rubrics"), self._names, lambda _, own: own)
        self._weights, self._enabled = {**self._weights, **weights}, {**self._enabled, **enabled}
        for entry in self._entries:
            if entry.name in running and isinstance(entry.scale, RunningScale):
                entry.scale.load(running[entry.name])
            if entry.name in rubrics:
                entry.rubric.load_state_dict(rubrics[entry.name])

    def close(self) -> None:
        """End the threads, of all clones too; one that a rubric hangs in is left behind."""
        self._workplace.close()

    @property
    def _names(self) -> list[str]:
        return [entry.name for entry in self._entries]

    def _due(self, action: Any, observation: Any) -> Step:
        """Return what is to be run on a step; RubricError after the last one of an episode."""
        if self._ended:
            raise RubricError(
                "the episode is over: its observation was done; call reset() before the next, or clone() per episode"
            )
        self._ended = is_done(observation)
        runs: list[Run] = []
        for entry in self._entries:
            counts = self._enabled[entry.name] and (self._ended or entry.phase == "per_turn")
            counts = counts and not (self._skip_zero_weight and self._weights[entry.name] == 0.0)
            if counts or entry.follows:
                runs.append(Run(entry, action, observation, counts=counts))
        return Step(runs, self._weights)

    def _begun(self, action: Any, observation: Any) -> Step:
        """Return a step whose rubrics have been called, here."""
        step = self._due(action, observation)
        try:
            with recorded() as step.given:
                start_here(step.runs, step.pending)
        except BaseException:  # a rubric's Ctrl-C too: coroutines that were made must not be left unawaited
            step.drop()
            raise
        return step

    def _finishing(self, step: Step) -> Steps[Composed]:
        try:
            if step.pending:
                yield from settled(finish_all(step.pending, self._max_concurrency))
        finally:
            step.drop()
        return self._compose(step)

    def _compose(self, step: Step) -> Composed:
        self._last = composed = step.composed(self._aggregate)
        for name in composed.mutated:
            if self._workplace.first_time(name):
                logger.warning(
                    "rubric=%s wrote into the action or observation it was given: a copy, which others don't see", name
                )
        return composed


def _for_another_episode(entry: Entry) -> Entry:
    own = getattr(entry.rubric, "clone", None)
    try:
        rubric: Any = own() if callable(own) else copy.deepcopy(entry.rubric)
    except Exception as error:  # copying runs code of the user's, and of what his object holds
        raise RubricError(
            f"it keeps an episode's state and can't be copied for another ({type(error).__name__}: {error}); "
            "give it a method clone() that returns a new one",
            rubric=entry.name,
        ) from error
    rubric.reset()
    return replace(entry, rubric=rubric)


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _must_be_awaited(name: str) -> RuntimeError:
    return RuntimeError(f"rubric {name} must be awaited, and an event loop runs here: use `await composer.acompute(…)`")

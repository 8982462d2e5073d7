"""The rubrics of a composer with what was said of each, checked as a whole before any of them is called."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

from reward_loop.functions.isolated import declared_isolation
from reward_loop.rubrics.adapters import as_rubric, is_async
from reward_loop.rubrics.episodes import follows_episode, keeps_state
from reward_loop.rubrics.failures import checked_policy
from reward_loop.rubrics.function_rubric import FunctionRubric
from reward_loop.rubrics.rubric import Rubric
from reward_loop.rubrics.run import Entry, Phase, Place, Placing
from reward_loop.rubrics.running_scale import RunningScale
from reward_loop.rubrics.scales import Raw, Scale, checked_scale, declared_scale
from reward_loop.rubrics.weights import checked, checked_name

Normalize = bool | Literal["running"]


def build_entries(
    rubrics: Mapping[str, Any],
    *,
    normalize: Normalize,
    strict: bool,
    scales: Mapping[str, Any] | None,
    phases: Mapping[str, Phase] | None,
    on_error: Mapping[str, Any] | None,
    timeouts_s: Mapping[str, float] | None,
) -> tuple[Entry, ...]:
    """Return the entries in the order of `rubrics`; KeyError for a setting of a rubric that there is not."""
    if normalize not in (True, False, "running"):
        raise ValueError(f'normalize is {normalize!r}; it must be True, False or "running"')
    known = {checked_name(name): as_rubric(thing) for name, thing in rubrics.items()}
    declared = checked("scales", scales, known, checked_scale)
    due = checked("phases", phases, known, _checked_phase)
    policies = checked("on_error", on_error, known, checked_policy)
    times = checked("timeouts_s", timeouts_s, known, _checked_timeout)
    entries = []
    for name, rubric in known.items():
        own = declared_scale(name, rubric, declared)
        policy = policies.get(name) or checked_policy(name, "raise")
        entries.append(
            Entry(
                name=name,
                rubric=rubric,
                phase=due.get(name, "per_turn"),
                scale=_scale(name, own, normalize, strict=strict),
                policy=policy,
                timeout_s=times.get(name),
                place=_place(rubric),
                follows=follows_episode(rubric),
                owned=keeps_state(rubric),
                keys=rubric.keys if isinstance(rubric, FunctionRubric) else None,
                part=f"rubric {name}",
            )
        )
        if strict and normalize is True and own is None and policy.kind == "value" and not 0.0 <= policy.value <= 1.0:
            raise ValueError(f"on_error of rubric {name} is {policy.value!r}, outside [0, 1]; declare the rubric's scale")
    return tuple(entries)


def _scale(name: str, declared: tuple[float, float] | None, normalize: Normalize, *, strict: bool) -> Placing:
    if normalize is False:
        return Raw()
    return RunningScale(name) if normalize == "running" and declared is None else Scale(name, declared, strict)


def _place(rubric: Rubric) -> Place:
    if is_async(rubric):
        return "task"
    # Nothing here is killed: what declares "process" is run so where the reward loop itself calls it, as `builtin.rule` does.
    return "inline" if declared_isolation(rubric) == "inline" else "thread"


def _checked_phase(name: str, phase: Any) -> Phase:
    if phase not in ("per_turn", "episode_end"):
        raise ValueError(f"the phase of rubric {name} is {phase!r}; it must be per_turn or episode_end")
    return phase  # type: ignore[no-any-return]


def _checked_timeout(name: str, timeout_s: Any) -> float | None:
    if timeout_s is None:
        return None
    if not isinstance(timeout_s, int | float) or isinstance(timeout_s, bool) or not 0 < timeout_s < math.inf:
        raise ValueError(f"timeouts_s of rubric {name} is {timeout_s!r}; it must be a number of seconds above 0, or None")
    return float(timeout_s)

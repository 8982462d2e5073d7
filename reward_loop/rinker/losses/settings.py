"""The configuration of a loss, checked: numbers under names that it knows."""

from __future__ import annotations

import math
from collections.abc import Mapping

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.losses.clipping import HIGH, LOW

_EPS = "eps"
"""The seed's spelling of both thresholds: 1 - eps and 1 + eps."""


def loss_settings(name: str, defaults: Mapping[str, float], config: Mapping[str, float | str] | None) -> dict[str, float]:
    """Return every setting of the loss; RequestFailedError ("user") for unknown names and for values that make no sense."""
    given = _without_eps(name, defaults, dict(config or {}))
    settings = dict(defaults)
    for key, value in given.items():
        if key not in defaults:
            known = ", ".join(defaults) or "no setting at all"
            raise _refusal(f"loss_fn_config[{key!r}] is no setting of {name}, which has {known}")
        settings[key] = _number(key, value)
    if LOW in settings and settings[LOW] > settings[HIGH]:
        raise _refusal(f"{LOW}={settings[LOW]} is above {HIGH}={settings[HIGH]}; they are ratios, such as 0.8 and 1.2")
    return settings


def _without_eps(name: str, defaults: Mapping[str, float], given: dict[str, float | str]) -> dict[str, float | str]:
    if _EPS not in given or name not in ("ppo", "gspo"):
        return given
    if LOW in given or HIGH in given:
        raise _refusal(f"loss_fn_config has eps and {LOW} or {HIGH}; give the thresholds alone")
    eps = _number(_EPS, given.pop(_EPS))
    if eps > 1:
        raise _refusal(f"eps={eps} must not be above 1: the lower threshold is 1 - eps")
    return {**given, LOW: 1 - eps, HIGH: 1 + eps}


def _number(key: str, value: float | str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise _refusal(f"loss_fn_config[{key!r}] must be a number; it is {value!r}") from None
    if not math.isfinite(number) or number < 0:
        raise _refusal(f"loss_fn_config[{key!r}] must be a finite number that is not negative; it is {value}")
    return number


def _refusal(message: str) -> RequestFailedError:
    return RequestFailedError(message, category="user")

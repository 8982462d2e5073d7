"""What each field of a rubric's entry may hold: one check per field, of files, of Python and of requests alike.

A check gets a value and the name under which it was given, and returns the value as it is kept (its own copy), or raises
ConfigRefused with the value and what to write instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from reward_loop.rubrics.names import is_name
from reward_loop.rubrics.refusal import refused

OnError: TypeAlias = "Literal['raise', 'mask'] | Mapping[str, float]"
"""What a rubric that fails is worth: `raise` (the sample fails), `mask` (it has no reward), or {"value": x}."""

RESERVED = frozenset({"total", "weights"})
"""Names that metrics have already: reward/total and reward/weights/…"""
MOST_LEVELS = 32
"""How deep a rubric's own settings may be nested."""


def name_of(value: object, where: str) -> str:
    """Check a rubric's name, which becomes part of metrics' names."""
    if not is_name(value):
        raise refused("bad_value", f"{where} must be 1 to 64 letters, digits and _ . - as text; it is {value!r:.200}")
    if value in RESERVED:
        raise refused("bad_value", f"{where}: {value!r} is the name of a metric already; call the rubric otherwise")
    return value


def spec_of(value: object, where: str) -> str:
    """Check what names a rubric's code; whether there is such code shows when it is built."""
    if not isinstance(value, str) or not value.strip():
        raise refused(
            "bad_value", f"{where} must name a rubric, such as builtin.regex or my_file.py:MyRubric; it is {value!r:.200}"
        )
    return value


def weight_of(value: object, where: str) -> float:
    """Check a weight: a finite number of any sign, and no bool or text, which a typing error would give."""
    if (number := _finite(value)) is None:
        raise refused("bad_weight", f"{where} must be a finite number; it is {value!r:.200}")
    return number


def flag_of(value: object, where: str) -> bool:
    """Check a switch."""
    if not isinstance(value, bool):
        raise refused("bad_value", f"{where} must be true or false; it is {value!r:.200}")
    return value


def on_error_of(value: object, where: str) -> OnError:
    """Check an error policy."""
    if isinstance(value, str) and value in ("raise", "mask"):
        return "raise" if value == "raise" else "mask"
    if isinstance(value, Mapping) and set(value) == {"value"} and (number := _finite(value["value"])) is not None:
        return {"value": number}
    raise refused("bad_value", f'{where} must be "raise", "mask" or {{value: a finite number}}; it is {value!r:.200}')


def timeout_of(value: object, where: str) -> float | None:
    """Check a time-out in seconds; None: none of its own."""
    number = _finite(value)
    if value is not None and (number is None or number <= 0):
        raise refused("bad_value", f"{where} must be a number of seconds, more than 0, or null; it is {value!r:.200}")
    return number


def settings_of(value: object, where: str) -> dict[str, Any]:
    """Check a rubric's own settings: what JSON can hold; `scale`, which is the composer's, is [lowest, highest]."""
    if not isinstance(value, Mapping):
        raise refused("bad_value", f"{where} must be a mapping of settings; it is {value!r:.200}")
    settings: dict[str, Any] = plain(value, where)
    if "scale" in settings:
        _check_scale(settings["scale"], f"{where}.scale")
    return settings


def plain(value: object, where: str, levels: int = MOST_LEVELS) -> Any:
    """Return a copy of a value that JSON can hold; anything else is refused with its place."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        if _finite(value) is None:
            raise refused("bad_value", f"{where} must be a finite number; it is one that is not, or has more than 308 digits")
        return value
    if isinstance(value, Mapping | list | tuple) and levels == 0:
        raise refused("bad_value", f"{where} is nested more than {MOST_LEVELS} levels deep")
    if isinstance(value, list | tuple):
        return [plain(item, f"{where}[{number}]", levels - 1) for number, item in enumerate(value)]
    if isinstance(value, Mapping):
        return {_key(key, where): plain(item, f"{where}.{key}", levels - 1) for key, item in value.items()}
    raise refused("bad_value", f"{where} must be text, a number, true, false, null, a list or a mapping; it is {value!r:.200}")


def _key(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise refused("bad_value", f"the keys of {where} must be text; quote {key!r:.100}")
    return key


def _finite(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an int of more than 308 digits
        return None
    return number if math.isfinite(number) else None


def _check_scale(scale: object, where: str) -> None:
    ends = [_finite(end) for end in scale] if isinstance(scale, list) else []
    if len(ends) != 2 or ends[0] is None or ends[1] is None or not ends[0] < ends[1]:
        raise refused(
            "bad_value", f"{where} must be [lowest, highest], two numbers, the first the smaller one; it is {scale!r:.200}"
        )


CHECKS: dict[str, Callable[[object, str], Any]] = {
    "name": name_of,
    "rubric": spec_of,
    "weight": weight_of,
    "config": settings_of,
    "enabled": flag_of,
    "on_error": on_error_of,
    "timeout_s": timeout_of,
}
"""The check of each field, in the order in which entries are shown."""

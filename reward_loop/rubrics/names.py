"""What rubrics, criteria and judge services may be called: names that every experiment tracker takes as part of a metric's."""

from __future__ import annotations

import re
from typing import TypeGuard

PATTERN = r"[A-Za-z0-9_.-]{1,64}"

_NAME = re.compile(PATTERN)


def is_name(value: object) -> TypeGuard[str]:
    """Say whether a value is such a name; dots alone are none, for they are paths."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None and bool(value.strip("."))

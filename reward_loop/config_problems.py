"""What pydantic says of wrong settings, in words that say what to do."""

from __future__ import annotations

from pydantic_core import ErrorDetails

from reward_loop.config_settings import Path


def place_of(detail: ErrorDetails) -> Path:
    """The path an error is about; a rule that spans settings reports at their section and names the key."""
    key = detail["ctx"]["key"] if detail["type"] == "unmet" and "ctx" in detail else ""
    return (*detail["loc"], *filter(None, key.split(".")))


_REMEDIES = {
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be more than {gt}",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "finite_number": "must be a finite number",
    "bool_": "must be true or false",
    "int_": "must be a whole number",
    "float_": "must be a number",
    "string_": "must be text; quote it",
    "tuple_": "must be a list, such as [a, b]",
    "dict_": "must be a mapping of keys to values",
}
"""What to do, by the beginning of pydantic's error type."""


def remedy_of(detail: ErrorDetails) -> str:
    """Return what to do about an error."""
    for kind, remedy in _REMEDIES.items():
        if detail["type"].startswith(kind):
            return remedy.format(**detail.get("ctx", {}))
    return detail["msg"]

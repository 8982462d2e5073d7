"""The JSON schema of updates to one pipeline: what GET /config/schema answers.

Invariant: what it refuses, the server refuses; the server also refuses what a schema can't say, such as one rubric named twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from reward_loop.rubrics.reward_config import PHASES, RewardConfig, RubricEntry
from reward_loop.rubrics.schema_version import SCHEMA_VERSION
from reward_loop.rubrics.update import APPLIES, Updateable

_WEIGHT = {"type": "number", "description": "Finite."}
_SWITCH = {"type": "boolean"}


def body_schema(config: RewardConfig, updateable: Updateable) -> dict[str, Any]:
    """Return the schema of the bodies that POST /config takes for this configuration."""
    entries = [entry for _, entry in config.entries()]
    phases: dict[str, Any] = {phase: _phase(getattr(config, phase), updateable) for phase in PHASES}
    by_name = {
        "weights": _named(entries, [_WEIGHT] * len(entries)),
        "enabled": _named(entries, [_SWITCH] * len(entries)),
        "config": _named(entries, [_settings(entry, updateable) for entry in entries]),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "An update of a running reward pipeline",
        **_object(
            {
                "schema_version": {"enum": [SCHEMA_VERSION, None]},
                **phases,
                **by_name,
                "apply": {"enum": [*APPLIES, None]},
                "config_version": {"type": ["integer", "null"], "description": "The version that the update is made for."},
            }
        ),
    }


def _object(properties: dict[str, Any], required: Iterable[str] = ()) -> dict[str, Any]:
    needed = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, "additionalProperties": False, **needed}


def _named(entries: Iterable[RubricEntry], schemas: Iterable[dict[str, Any]]) -> dict[str, Any]:
    return _object({entry.name: schema for entry, schema in zip(entries, schemas, strict=True)})


def _phase(entries: Iterable[RubricEntry], updateable: Updateable) -> dict[str, Any]:
    kinds = [_entry(entry, updateable) for entry in entries]
    return {"type": ["array", "null"], "items": {"anyOf": kinds} if kinds else False}


def _entry(entry: RubricEntry, updateable: Updateable) -> dict[str, Any]:
    return _object(
        {
            "name": {"const": entry.name},
            "rubric": {"const": entry.rubric},
            "weight": _WEIGHT,
            "config": _settings(entry, updateable),
            "enabled": _SWITCH,
            "on_error": {"const": entry.on_error},
            "timeout_s": {"const": entry.timeout_s},
        },
        ["name"],
    )


def _settings(entry: RubricEntry, updateable: Updateable) -> dict[str, Any]:
    """What may change may be anything that the rubric takes; the rest may only be repeated."""
    fixed = {key: {"const": value} for key, value in entry.config.items()}
    return _object(fixed | {key: {} for key in updateable.get(entry.name, ())})

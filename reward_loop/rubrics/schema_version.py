"""Which configurations this code reads: those of its own schema version, and those that don't say.

Invariants: another version is never guessed at; a number is taken only where it can mean nothing else than ours.
"""

from __future__ import annotations

import logging

from reward_loop.errors import SchemaVersionError

logger = logging.getLogger(__name__)

SCHEMA_VERSION = "1.0"


def check_schema_version(given: object) -> str:
    """Return the version of a whole configuration; SchemaVersionError unless it is ours, or absent (None), which is logged."""
    if given is None:
        logger.warning('schema_version is missing: taken as "%s"; write it, so that the run can be repeated', SCHEMA_VERSION)
        return SCHEMA_VERSION
    return check_update_version(given) or SCHEMA_VERSION


def check_update_version(given: object) -> str | None:
    """Return the version that an update states, None where it states none; SchemaVersionError unless it is ours."""
    if given is None or given == SCHEMA_VERSION:
        return SCHEMA_VERSION if given else None
    if isinstance(given, float) and str(given) == SCHEMA_VERSION:
        logger.warning('schema_version: %s is a number, since it has no quotes; write "%s"', given, SCHEMA_VERSION)
        return SCHEMA_VERSION
    unquoted = isinstance(given, int | float) and not isinstance(given, bool)
    quote = f'; without quotes YAML reads a version as a number (1.10 as 1.1): quote it, "{SCHEMA_VERSION}"' if unquoted else ""
    raise SchemaVersionError(
        f"schema_version is {given!r:.100}, and this code reads {SCHEMA_VERSION!r}{quote}",
        expected=SCHEMA_VERSION,
        got=str(given)[:100],
    )

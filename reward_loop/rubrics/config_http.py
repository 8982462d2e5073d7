"""What GET and POST /config answer, without a server: requests' parts in, status, headers and body out.

    GET  /config              200, the active configuration: schema_version, per_turn, episode_end, and config_version
    GET  /config?pending=1    200, the one that holds from the next reset on
    GET  /config?after=N      200, the same with `immediate` (what running episodes take over) once its version isn't N
    POST /config              200, {"status": "ok", "config": …, "applies": …, "config_version": …}
    GET  /config/schema       200, the JSON schema of the bodies that POST takes

Whatever is refused is {"status": "error", "error": {"code", "message", …}}. Invariant: what is refused has changed nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from reward_loop.errors import SchemaVersionError
from reward_loop.rubrics.entry_fields import MOST_LEVELS
from reward_loop.rubrics.live_config import Accepted, State, Versioned
from reward_loop.rubrics.refusal import ConfigRefused, refused

MAX_BODY = 1 << 20
"""The longest body that is read, in bytes."""
_LEVELS_ABOVE_SETTINGS = 4
_TAG = re.compile(r'"?(?P<latest>[0-9]{1,18})(-[0-9]+)?"?')


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, before it is bytes."""

    status: int
    content: Mapping[str, Any]
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def shown(versioned: Versioned) -> dict[str, Any]:
    """Return a configuration with its version, as it is answered."""
    return {**versioned.config.as_dict(), "config_version": versioned.version}


def active_reply(state: State) -> Reply:
    """Answer with the active configuration; its tag says also which version is the latest, which is what If-Match is about."""
    tag = str(state.latest.version) if state.active is state.latest else f"{state.latest.version}-{state.active.version}"
    return Reply(200, shown(state.active), {"ETag": f'"{tag}"'})


def pending_reply(state: State) -> Reply:
    """Answer with the configuration that holds from the next reset on."""
    return Reply(200, shown(state.latest), {"ETag": f'"{state.latest.version}"'})


def follow_reply(state: State) -> Reply:
    """Answer a process that follows with all that it needs."""
    return Reply(200, {**shown(state.latest), "immediate": shown(state.immediate)}, {"ETag": f'"{state.latest.version}"'})


def accepted_reply(accepted: Accepted) -> Reply:
    """Answer an update that was taken."""
    content = {
        "status": "ok",
        "config": accepted.config.as_dict(),
        "applies": accepted.applies,
        "config_version": accepted.version,
    }
    return Reply(200, content, {"ETag": f'"{accepted.version}"'})


def error_reply(status: int, code: str, message: str, headers: Mapping[str, str] | None = None, **more: object) -> Reply:
    """Answer a request that is refused."""
    return Reply(status, {"status": "error", "error": {"code": code, "message": message, **more}}, headers or {})


def refusal_reply(error: ConfigRefused | SchemaVersionError) -> Reply:
    """Answer an update that is refused."""
    if isinstance(error, SchemaVersionError):
        return error_reply(400, "schema_version", error.message, expected=error.expected, got=error.got)
    return error_reply({"conflict": 412, "read_only": 409}.get(error.code, 400), error.code, error.message)


def parse_body(body: bytes) -> Any:
    """Read a body; ConfigRefused for what is no JSON, or names one key of an object twice."""
    try:
        parsed = json.loads(body.decode("utf-8"), object_pairs_hook=_object)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise refused("not_json", f"the body must be a JSON object in UTF-8: {error}") from None
    level = [parsed]
    for _ in range(MOST_LEVELS + _LEVELS_ABOVE_SETTINGS):
        level = [child for value in level for child in _children(value)]
        if not level:
            return parsed
    raise _too_deep()


def matched_version(if_match: str | None) -> int | None:
    """Return the version that a header If-Match names, None where any will do; ConfigRefused for a tag that isn't ours."""
    if if_match is None or if_match.strip() == "*":
        return None
    tag = _TAG.fullmatch(if_match.strip())
    if tag is None:
        raise refused("conflict", f"If-Match {if_match!r:.100} is no ETag of this configuration; read it again")
    return int(tag["latest"])


def _children(value: object) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _too_deep() -> ConfigRefused:
    return refused("not_json", f"the body is nested more than {MOST_LEVELS} levels deep")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    known = dict(pairs)
    if len(known) < len(pairs):
        names = [name for name, _ in pairs]
        twice = sorted({name for name in names if names.count(name) > 1})
        raise refused("duplicate", f"the body has {', '.join(map(repr, twice))[:200]} twice in one object; say it once")
    return known

"""What a router is told at its start, in one line of JSON: its settings and, after a crash, the replicas that it had."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from reward_loop.errors import RouterError
from reward_loop.router.fleet import Fleet, Replica
from reward_loop.router.settings import RouterSettings


def write_startup(settings: RouterSettings, replicas: Iterable[Replica]) -> bytes:
    """Return the line."""
    had = [{"model": replica.model, "url": replica.url, "state": replica.state} for replica in replicas]
    return json.dumps({**asdict(settings), "replicas": had}).encode() + b"\n"


def read_startup(line: bytes) -> tuple[RouterSettings, Fleet]:
    """Return the settings and a fleet of these replicas; RouterError for a line that is none of `write_startup`."""
    fleet = Fleet()
    try:
        values: Any = json.loads(line)
        for had in values.pop("replicas", ()):
            fleet.add(had["model"], had["url"])
            match had["state"]:
                case "draining":
                    fleet.drain(had["url"])
                case "asleep":
                    fleet.sleep(had["url"])
                case "waking":
                    fleet.waking(had["url"])
                case _:  # a health check will tell
                    pass
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        message = f"the first line of standard input must hold the router's settings; {line[:200]!r} does not: {error!r}"
        raise RouterError(message) from None
    return RouterSettings.from_json(json.dumps(values)), fleet

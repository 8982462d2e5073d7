"""The HTTP routes of a weight update: vLLM's own names, with a session in every body.

    POST /start_weight_update          {"session", "timeout_s", "trainer"}
    POST /init_weight_transfer_engine  {"init_info": {"session", "ticket"}}
    POST /update_weights               {"update_info": {"phase": "prepare" | "transfer" | "verify" | "abort", "session", …}}
    POST /finish_weight_update         {"session", "weight_version", "drain_timeout_s"} or {"session", "revert": true}

Invariant: a body without a session is refused: it is meant for another weight transfer engine than ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from reward_loop.serving.inside.exchange import Receive, unless_hung_up
from reward_loop.serving.inside.reply import Reply, bad_request
from reward_loop.serving.inside.weight_updates import WeightUpdates

_TIMEOUT_S = 600.0
_DRAIN_TIMEOUT_S = 60.0
_MODES = ("head_only", "lora", "full")
_OTHERS = {
    "/start_draft_weight_update": "there is no update of a draft model",
    "/shutdown_weight_transfer_engine": "the engine `reward_loop` lasts as long as the server",
}

UPDATE_PATHS = frozenset(
    {"/start_weight_update", "/init_weight_transfer_engine", "/update_weights", "/finish_weight_update", *_OTHERS}
)


class UpdateRoutes:
    """The routes over these updates."""

    def __init__(self, updates: WeightUpdates) -> None:
        self._updates = updates

    async def reply(self, path: str, body: Mapping[str, Any], receive: Receive) -> Reply:
        """Answer a POST to one of UPDATE_PATHS; raises Refusal, and HungUp if the sender of a transfer does."""
        match path:
            case "/start_weight_update":
                return await self._start(body)
            case "/init_weight_transfer_engine":
                return await self._init(field(body, "init_info", dict, path))
            case "/update_weights":
                return await self._update(field(body, "update_info", dict, path), receive)
            case "/finish_weight_update":
                return await self._finish(body)
            case _:
                raise bad_request(f"POST {path}: {_OTHERS[path]}")

    async def _start(self, body: Mapping[str, Any]) -> Reply:
        session = session_of(body, "/start_weight_update")
        trainer = optional(body, "trainer", str, "/start_weight_update") or "a trainer without a name"
        await self._updates.start(session, trainer, seconds(body, "timeout_s", _TIMEOUT_S))
        return Reply(200, {"session": session, "version": self._updates.version})

    async def _init(self, info: Mapping[str, Any]) -> Reply:
        session = session_of(info, "/init_weight_transfer_engine")
        ticket = field(info, "ticket", dict, "/init_weight_transfer_engine")
        await self._updates.ticket(session, ticket)
        return Reply(200, {"session": session})

    async def _update(self, info: Mapping[str, Any], receive: Receive) -> Reply:
        session, phase = session_of(info, "/update_weights"), info.get("phase")
        match phase:
            case "prepare":
                mode, version = field(info, "mode", str, phase), field(info, "version", int, phase)
                if mode not in _MODES:
                    raise bad_request(f"mode={mode!r} must be one of {', '.join(_MODES)}")
                if version < 0:
                    raise bad_request(f"version={version} must not be negative")
                await self._updates.prepare(session, field(info, "manifest", dict, phase), mode, version)
                return Reply(200, {"session": session, "version": version})
            case "transfer":
                return Reply(200, await unless_hung_up(self._updates.transfer(session), receive))
            case "verify":
                await self._updates.verify(session, field(info, "digests", list, phase))
                return Reply(200, {"session": session})
            case "abort":
                aborted = await self._updates.abort(session)
                return Reply(200, {"session": session, "aborted": aborted, "version": self._updates.version})
            case _:
                raise bad_request(f"phase={phase!r} must be prepare, transfer, verify or abort")

    async def _finish(self, body: Mapping[str, Any]) -> Reply:
        session = session_of(body, "/finish_weight_update")
        drain_timeout_s = seconds(body, "drain_timeout_s", _DRAIN_TIMEOUT_S)
        if optional(body, "revert", bool, "/finish_weight_update"):
            timings = await self._updates.revert(session, drain_timeout_s)
        else:
            version = body.get("weight_version")
            timings = await self._updates.finish(session, None if version is None else str(version), drain_timeout_s)
        return Reply(200, {"version": self._updates.version, **timings})


def session_of(body: Mapping[str, Any], path: str) -> str:
    """Return the session of a body; raises Refusal (400) that says how an update goes if there is none."""
    session = body.get("session")
    if not isinstance(session, str) or not session:
        raise bad_request(
            f"POST {path} has no session, so it is meant for another weight transfer engine than `reward_loop`. Publish with "
            "reward_loop.RewardModelPublisher, or begin with POST /start_weight_update {session, timeout_s, trainer}"
        )
    return session


def field(body: Mapping[str, Any], name: str, kind: type[Any], where: str) -> Any:
    """Return what a body has under this name; raises Refusal (400) if it is not there or of another kind."""
    found = body.get(name)
    if type(found) is not kind:  # a bool is no int here
        raise bad_request(f"{where}: {name}={found!r:.100} must be a JSON {_JSON[kind]}")
    return found


def optional(body: Mapping[str, Any], name: str, kind: type[Any], where: str) -> Any:
    """Return what a body has under this name, None if nothing; raises Refusal (400) if it is of another kind."""
    return None if body.get(name) is None else field(body, name, kind, where)


def seconds(body: Mapping[str, Any], name: str, default: float) -> float:
    """Return a time limit; raises Refusal (400) unless it is a positive number."""
    found = body.get(name, default)
    if type(found) not in (int, float) or not 0 < found < float("inf"):
        raise bad_request(f"{name}={found!r:.100} must be a positive number of seconds")
    return float(cast("float", found))


_JSON: Mapping[type[Any], str] = {dict: "object", list: "list", str: "string", int: "integer", bool: "true or false"}

"""The routes that seed 000 names, over the same updates: a whole update is announced by one call, received in the background.

    POST /init_communicator         {"host", "port", "world_size", "rank"?, …}: how the trainer is reached
    POST /update_param_batch        {"metadata": [{"name", "dtype", "shape"}], "training_mode"?, "version"?, "bucket_bytes"?, …}
    POST /get_num_background_tasks  {"num_background_tasks", "last_error"}
    POST /close_communicator

The trainer sends as any trainer of ours does, with `communicator_of(plane, host=…, port=…)` and the same manifest. As in the
seed it has the last rank of `world_size`, and the servers those before it; a server counts once, however many devices it has.
Further fields of /init_communicator (`plane`, and what that one wants) go into the ticket.
Invariant: what is wrong with an update is told by the call that announces it, or by `last_error`; never by silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from reward_loop.errors import WeightSyncError
from reward_loop.serving.inside.background import Background
from reward_loop.serving.inside.reply import Refusal, Reply, bad_request
from reward_loop.serving.inside.update_routes import field, optional, seconds
from reward_loop.serving.inside.weight_updates import WeightUpdates
from reward_loop.sync.manifest import Manifest

SEED_PATHS = frozenset({"/init_communicator", "/update_param_batch", "/get_num_background_tasks", "/close_communicator"})

_BUCKET_BYTES = 64 << 20
_TIMEOUT_S = 600.0
_DRAIN_TIMEOUT_S = 60.0


class SeedRoutes:
    """The routes; `plane` is what carries the tensors where the client does not say."""

    def __init__(self, updates: WeightUpdates, background: Background, plane: str) -> None:
        self._updates = updates
        self._background = background
        self._plane = plane
        self._ticket: Mapping[str, Any] | None = None
        self._session: str | None = None
        self._last_error: str | None = None

    async def reply(self, path: str, body: Mapping[str, Any]) -> Reply:
        """Answer a POST to one of SEED_PATHS; raises Refusal."""
        match path:
            case "/init_communicator":
                self._init(body)
            case "/update_param_batch":
                await self._announced(body)
            case "/close_communicator":
                await self._close()
            case _:
                running = int(self._session is not None)
                return Reply(200, {"num_background_tasks": running, "last_error": self._last_error})
        return Reply(200, {"status": "ok"})

    def _init(self, body: Mapping[str, Any]) -> None:
        where = "/init_communicator"
        host, port = field(body, "host", str, where), field(body, "port", int, where)
        world_size, rank = field(body, "world_size", int, where), optional(body, "rank", int, where) or 0
        if not 0 <= rank < world_size - 1:
            raise bad_request(
                f"rank={rank} of world_size={world_size}: the trainer is the last of them, this server one before it"
            )
        more = {name: value for name, value in body.items() if name not in ("world_size", "rank")}
        self._ticket = {
            "plane": self._plane,
            "trainer": f"{host}:{port}",
            "number": rank + 1,
            "receivers": world_size - 1,
            **more,
        }

    async def _announced(self, body: Mapping[str, Any]) -> None:
        """Begin an update; it is refused here if it does not fit the model."""
        if self._ticket is None:
            raise Refusal(409, "out_of_order", "nobody knows how the trainer is reached: POST /init_communicator first")
        manifest = _manifest(body)
        mode = optional(body, "training_mode", str, "/update_param_batch") or "full"
        version = optional(body, "version", int, "/update_param_batch")
        drain_timeout_s = seconds(body, "drain_timeout_s", _DRAIN_TIMEOUT_S)
        session = f"param-batch-{uuid4().hex}"
        await self._updates.start(session, "a client of /update_param_batch", seconds(body, "timeout_s", _TIMEOUT_S))
        stream = {"bucket_bytes": manifest.bucket_bytes, "nbytes": manifest.nbytes}
        await self._updates.ticket(session, {**self._ticket, **stream})
        version = self._updates.version + 1 if version is None else version
        await self._updates.prepare(session, manifest.as_json(), mode, version)
        self._session, self._last_error = session, None
        self._background.start(self._updated(session, drain_timeout_s))

    async def _updated(self, session: str, drain_timeout_s: float) -> None:
        try:
            await self._updates.transfer(session)
            await self._updates.finish(session, None, drain_timeout_s)
        except Refusal as refusal:
            self._last_error = str(refusal)
        finally:
            self._session = None

    async def _close(self) -> None:
        self._ticket = None
        if self._session is not None:
            await self._updates.abort(self._session)


def _manifest(body: Mapping[str, Any]) -> Manifest:
    """Return the layout of what is announced; names of types may be torch's ("torch.float32")."""
    tensors = [
        {**one, "dtype": str(one.get("dtype")).removeprefix("torch.")} if isinstance(one, dict) else one
        for one in field(body, "metadata", list, "/update_param_batch")
    ]
    bucket_bytes = optional(body, "bucket_bytes", int, "/update_param_batch") or _BUCKET_BYTES
    try:
        return Manifest.from_json({"tensors": tensors, "bucket_bytes": bucket_bytes})
    except WeightSyncError as error:
        raise Refusal(400, "refused", str(error)) from error

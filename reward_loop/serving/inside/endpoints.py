"""The reward server's own endpoints, as one ASGI middleware of vLLM's server (its option --middleware).

Invariant: a body of /score without "input" is vLLM's own (text_1/text_2, queries/documents) and reaches it unchanged.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from vllm import envs
from vllm.distributed.weight_transfer.base import WeightTransferInitRequest, WeightTransferUpdateRequest
from vllm.exceptions import VLLMError
from vllm.v1.engine.exceptions import EngineDeadError

from reward_loop.serving.inside.admission import sent
from reward_loop.serving.inside.engine import Engine
from reward_loop.serving.inside.exchange import Receive, Scope, Send, body_of, replayed, unless_hung_up
from reward_loop.serving.inside.identity import Identity
from reward_loop.serving.inside.keys import check_key
from reward_loop.serving.inside.middleware import Middleware, Served, json_of
from reward_loop.serving.inside.reply import Reply
from reward_loop.serving.inside.score_request import parsed
from reward_loop.serving.inside.update_directory import UpdateDirectory
from reward_loop.serving.inside.update_engine import UpdateEngine
from reward_loop.serving.inside.weight_updates import WeightUpdates

_VLLMS_OWN = ({"text_1", "text_2"}, {"queries", "documents"}, {"queries", "items"}, {"data_1", "data_2"})


class RewardEndpoints(Middleware[Engine]):
    """The middleware: `--middleware reward_loop.serving.inside.endpoints.RewardEndpoints`."""

    def served_by(self, state: Any) -> Served[Engine]:
        """Return what there is to know of the server with this state (vLLM's `app.state`)."""
        config = state.engine_client.vllm_config
        updates = WeightUpdates(
            UpdateEngine(state.engine_client, WeightTransferInitRequest, WeightTransferUpdateRequest),
            UpdateDirectory.of(config.instance_id),
            self.gate,
            self.residence,
            self.background,
            time.monotonic,
        )
        keys = state.args.api_key or [envs.VLLM_API_KEY]
        return Served(Engine.of(state), Identity.of(config), updates, keys)

    async def score(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer POST /score."""
        served = self.served(scope)
        check_key(served.keys, scope["headers"])
        raw = await body_of(receive)
        body = json_of(raw)
        if "input" not in body and any(own <= body.keys() for own in _VLLMS_OWN):
            await self.app(scope, replayed(raw, receive), send)
            return
        version = served.updates.version
        try:
            reply = await unless_hung_up(served.engine.score(parsed(body)), receive)
        except VLLMError as error:
            # Ends the server when its engine is dead, as for vLLM's own endpoints.
            response = await scope["app"].exception_handlers[VLLMError](Request(scope), error)
            await response(scope, receive, send)
        else:
            await sent(replace(reply, content={**reply.content, "version": version}), send)

    async def health(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer GET /health, or let vLLM say that its engine is dead."""
        engine = self.served(scope).engine
        try:
            await engine.client.check_health()
        except EngineDeadError:
            await self.app(scope, receive, send)
        else:
            await sent(Reply(200, {"status": "ok", **engine.about(), "asleep": self.residence.asleep}), send)

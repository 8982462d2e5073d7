"""What every request passes: errors become answers with a reason, strangers are sent away, and all while the server stops."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from reward_loop.errors import DataError, RewardLoopError
from reward_loop.rinker.server.answers import say
from reward_loop.rinker.server.failures import category_of
from reward_loop.rinker.server.hub import Hub
from reward_loop.rinker.server.refusal import Refusal
from reward_loop.rinker.server.settings import KEY_PREFIX, ServerSettings

logger = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

HEALTH = "/api/v1/healthz"
"""Answered to everyone."""


def errors_as_answers(hub: Hub) -> Middleware:
    """Return what turns errors into answers."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if hub.stopping:
                raise Refusal(503, "the server is being stopped", retry_after_s=1)
            if request.path != HEALTH:
                check_key(request.headers.get("X-API-Key"), hub.settings)
            return await handler(request)
        except Refusal as refusal:
            return _refused(refusal)
        except DataError as error:
            return _refused(Refusal(400, error.message))
        except web.HTTPException as error:
            return _refused(Refusal(error.status, f"{error.reason}: {request.method} {request.path!r:.200} is not served here"))
        except RewardLoopError as error:
            category = category_of(error)
            return say({"detail": str(error), "category": category}, 400 if category == "user" else 500)
        except Exception as error:  # a fault of ours: the client must be told, and the server must go on
            logger.exception("%s %s failed", request.method, request.path)
            return say({"detail": f"{type(error).__name__}: {error}", "category": "server"}, 500)

    return guarded


def check_key(key: str | None, settings: ServerSettings) -> None:
    """Raise Refusal (401) for a key that is not the right one."""
    if key is None:
        raise Refusal(401, "send an API key in the header X-API-Key")
    if settings.api_key is None:
        if not key.startswith(KEY_PREFIX):
            raise Refusal(401, f"an API key begins with {KEY_PREFIX}")
        return
    # In bytes: compare_digest takes no texts beyond ASCII.
    if not hmac.compare_digest(key.encode("utf-8", "replace"), settings.api_key.get_secret_value().encode()):
        raise Refusal(401, "the API key is not the server's")


def _refused(refusal: Refusal) -> web.Response:
    answer = say({"detail": refusal.reason}, refusal.status)
    if refusal.retry_after_s is not None:
        answer.headers["Retry-After"] = str(refusal.retry_after_s)
    return answer

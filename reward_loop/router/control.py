"""What the router answers itself when asked for it: /admin, with its token, and /metrics.

    GET    /admin/replicas                                  -> 200, the fleet
    POST   /admin/replicas         {"model", "url"}         -> 201
    POST   /admin/replicas/drain   {"url", "timeout_s"?}    -> 200 once nothing is in flight there, else 504
    POST   /admin/replicas/sleep   {"url", "timeout_s"?}    -> the same; from then on nothing is sent there
    POST   /admin/replicas/waking  {"url"}                  -> 200: requests wait for it, instead of being refused as asleep
    POST   /admin/replicas/wake    {"url"}                  -> 200: it gets requests (again)
    DELETE /admin/replicas         {"url"}                  -> 200
    GET    /metrics                                         -> 200, Prometheus text; no token

Every other answer is {"error": {"type", "message", "code"}} and the type in X-Reward-Router.

Invariants: nothing is changed by a request that is refused; who waits for a replica to be done holds up nobody else.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from reward_loop.errors import RouterError
from reward_loop.router.fleet import Fleet, Replica, State
from reward_loop.router.metrics import CONTENT_TYPE, Metrics

logger = logging.getLogger(__name__)

Reply = tuple[int, Mapping[str, str], bytes]
"""Status, headers and body."""

DEFAULT_WAIT_S = 60.0
"""Seconds that drain and sleep wait where the request does not say."""
_LOOK_S = 0.01


class Refused(Exception):
    """A request that can't be done; `status` and `kind` go to who asked."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Order:
    """The body of a request to /admin."""

    values: Mapping[str, Any]

    @classmethod
    def parse(cls, body: bytes, known: set[str]) -> Order:
        """Read a body; Refused when it is no JSON object, or names what nobody knows."""
        try:
            values = json.loads(body)
        except ValueError as error:
            raise _bad(f"the body must be a JSON object with {sorted(known)}; {body[:100]!r} is no JSON: {error}") from None
        if not isinstance(values, dict) or not values.keys() <= known:
            raise _bad(f"the body must be a JSON object with {sorted(known)}; it is {body[:200]!r}")
        return cls(values)

    def text(self, name: str) -> str:
        """Return a value that must be there and be text."""
        value = self.values.get(name)
        if not isinstance(value, str) or not value:
            raise _bad(f"{name!r} must be text that is not empty; it is {value!r:.200}")
        return value

    def seconds(self, name: str, default: float) -> float:
        """Return a number of seconds."""
        value = self.values.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
            raise _bad(f"{name!r} must be a number of seconds, 0 or more; it is {value!r:.200}")
        return float(value)


class Control:
    """Answers for a fleet; `admin_token` None: /admin is closed."""

    def __init__(self, fleet: Fleet, admin_token: str | None) -> None:
        self._fleet = fleet
        self._token = None if admin_token is None else admin_token.encode()
        self._metrics = Metrics(fleet)

    async def __call__(self, method: str, path: str, query: str, headers: Mapping[str, str], body: bytes) -> Reply:
        """Answer one request; `headers` by lower-case name."""
        try:
            if path == "/metrics":
                if method != "GET":
                    raise _wrong_method(method, path, "GET")
                return 200, {"Content-Type": CONTENT_TYPE}, self._metrics.text()
            self._let_in(headers.get("authorization", ""))
            status, answer = await self._admin(method, path, body)
            return status, {"Content-Type": "application/json"}, json.dumps(answer).encode()
        except Refused as refused:
            return _answer(refused)

    def _let_in(self, authorization: str) -> None:
        if self._token is None:
            raise Refused(401, "unauthorized", "/admin is closed: this router was started without admin_token")
        scheme, _, shown = authorization.partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(shown.strip().encode(errors="surrogateescape"), self._token):
            raise Refused(401, "unauthorized", "/admin wants the header Authorization: Bearer with the router's admin_token")

    async def _admin(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        match method, path.removeprefix("/admin").rstrip("/"):
            case "GET", "/replicas":
                return 200, self._fleet.snapshot()
            case "POST", "/replicas":
                return 201, self._add(Order.parse(body, {"model", "url"})).snapshot()
            case "DELETE", "/replicas":
                return 200, self._remove(Order.parse(body, {"url"})).snapshot()
            case "POST", "/replicas/waking":
                return 200, self._wake(self._fleet.waking, Order.parse(body, {"url"})).snapshot()
            case "POST", "/replicas/wake":
                return 200, self._wake(self._fleet.wake, Order.parse(body, {"url"})).snapshot()
            case "POST", "/replicas/drain":
                return 200, (await self._empty("draining", Order.parse(body, {"url", "timeout_s"}))).snapshot()
            case "POST", "/replicas/sleep":
                return 200, (await self._empty("asleep", Order.parse(body, {"url", "timeout_s"}))).snapshot()
            case _, "/replicas":
                raise _wrong_method(method, path, "GET, POST, DELETE")
            case _, "/replicas/waking" | "/replicas/wake" | "/replicas/drain" | "/replicas/sleep":
                raise _wrong_method(method, path, "POST")
            case _:
                raise Refused(
                    404, "not_found", f"there is no {path!r:.200}; below /admin/replicas are drain, sleep, waking, wake"
                )

    def _add(self, order: Order) -> Replica:
        model, url = order.text("model"), order.text("url")
        try:
            self._fleet.find(url)
        except KeyError:
            replica = self._fleet.add(model, url)
        except RouterError as error:
            raise _bad(error.message) from None
        else:
            raise Refused(409, "conflict", f"{url} is a replica of {self._fleet.find(url).model!r} already; remove it first")
        logger.info("replica=%s model=%s state=%s", replica.url, replica.model, replica.state)
        return replica

    def _remove(self, order: Order) -> Replica:
        replica = self._fleet.remove(self._find(order).url)
        logger.info("replica=%s model=%s removed in_flight=%d", replica.url, replica.model, replica.in_flight)
        return replica

    def _wake(self, change: Callable[[str], Replica], order: Order) -> Replica:
        replica = change(self._find(order).url)
        logger.info("replica=%s model=%s state=%s", replica.url, replica.model, replica.state)
        return replica

    async def _empty(self, state: State, order: Order) -> Replica:
        """Send a replica nothing more and wait until it is done; it stays so also when that takes too long."""
        replica, timeout_s = self._find(order), order.seconds("timeout_s", DEFAULT_WAIT_S)
        (self._fleet.drain if state == "draining" else self._fleet.sleep)(replica.url)
        logger.info("replica=%s model=%s state=%s in_flight=%d", replica.url, replica.model, state, replica.in_flight)
        try:
            async with asyncio.timeout(timeout_s):
                while replica.in_flight:  # noqa: ASYNC110 - the data path counts, and has nobody to tell
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            message = (
                f"{replica.url} has {replica.in_flight} requests in flight after {timeout_s:g} s; it gets no new ones: ask again"
            )
            raise Refused(504, "timeout", message) from None
        if replica.state not in (state, "gone"):
            raise Refused(409, "conflict", f"{replica.url} was told otherwise meanwhile: it is {replica.state}, not {state}")
        return replica

    def _find(self, order: Order) -> Replica:
        url = order.text("url")
        try:
            return self._fleet.find(url)
        except KeyError:
            urls = [replica.url for replica in self._fleet]
            raise Refused(404, "unknown_replica", f"no replica is at {url!r:.200}; there are {urls}") from None
        except RouterError as error:
            raise _bad(error.message) from None


def _bad(message: str) -> Refused:
    return Refused(400, "bad_request", message)


def _wrong_method(method: str, path: str, allowed: str) -> Refused:
    return Refused(405, "method_not_allowed", f"{path} takes {allowed}, not {method:.20}")


def _answer(refused: Refused) -> Reply:
    error = {"type": refused.kind, "message": str(refused), "code": refused.status}
    return (
        refused.status,
        {"Content-Type": "application/json", "X-Reward-Router": refused.kind},
        json.dumps({"error": error}).encode(),
    )

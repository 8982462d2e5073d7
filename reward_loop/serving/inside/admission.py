"""What is let through to vLLM, and when: what computes, what puts the engine to sleep or pauses it, what replaces weights.

Invariants: nothing computes while the model can't; every reply of what computes names the version of the weights that served it
(X-Reward-Model-Version), and no reply is made of two; a pooling server is never told to abort what is in flight, which kills it.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import parse_qs, urlencode

from reward_loop.serving.inside.exchange import App, Message, Receive, Scope, Send, body_of, replayed
from reward_loop.serving.inside.gate import Gate
from reward_loop.serving.inside.reply import Refusal, Reply
from reward_loop.serving.inside.residence import Residence

VERSION_HEADER = "X-Reward-Model-Version"

CONTROLS = frozenset(
    {"/sleep", "/wake_up", "/pause", "/resume", "/release_kv_cache_memory", "/finish_weight_update", "/collective_rpc"}
)
"""Paths of vLLM's own that change what the engine does or holds."""


class Admission:
    """The doors of the application `app`, which is vLLM's."""

    def __init__(self, app: App, gate: Gate, residence: Residence) -> None:
        self._app = app
        self._gate = gate
        self._residence = residence

    async def compute(self, work: App, version: Callable[[], int], scope: Scope, receive: Receive, send: Send) -> None:
        """Have `work` answer what needs the model, once it may; raises Refusal at once where the model can't compute."""
        self._residence.check()
        async with self._gate.passed():
            self._residence.check()  # it may have waited at the gate
            told = _versioned(send, version())
            try:
                await work(scope, receive, told)
            except Refusal as refusal:
                await sent(refusal.reply(), told)

    async def control(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a POST to one of CONTROLS, when no weights are being exchanged."""
        async with self._gate.controlled():
            match path:
                case "/sleep":
                    await self._sleep(_without_abort(scope), receive, send)
                case "/wake_up":
                    await self._wake(scope, receive, send)
                case "/finish_weight_update" | "/collective_rpc":
                    await self._sync(path, scope, receive, send)
                case _:
                    await self._app(_without_abort(scope) if path == "/pause" else scope, receive, send)

    async def _sleep(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a sleep; from its beginning on, nothing new is let in."""
        residence, query = self._residence, parse_qs(scope["query_string"].decode())
        level = query.get("level", ["1"])[-1]
        was_asleep, weights_slept = residence.asleep, residence.weights_asleep
        residence.asleep = level != "0"
        residence.weights_asleep |= level != "0"
        confirmed = False

        def done(_: bytes) -> None:
            nonlocal confirmed
            confirmed = True
            residence.dropped |= level == "2" and not was_asleep

        try:
            if query.get("mode", [""])[-1] == "wait":
                await self._gate.idle()  # the engine knows only what has reached it: a text still tokenised would wait asleep
            await _passed_on(self._app, scope, receive, send, done)
        finally:
            if not confirmed:
                residence.asleep, residence.weights_asleep = was_asleep, weights_slept

    async def _wake(self, scope: Scope, receive: Receive, send: Send) -> None:
        tags = parse_qs(scope["query_string"].decode()).get("tags", ["weights"])

        def done(reply: bytes) -> None:
            self._residence.asleep = b'"awake"' not in reply  # with tags, a part may still sleep
            self._residence.weights_asleep &= "weights" not in tags and self._residence.asleep

        await _passed_on(self._app, scope, receive, send, done)

    async def _sync(self, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may bring dropped weights back."""
        body = await body_of(receive)
        syncs = path == "/finish_weight_update" or b'"reload_weights"' in body

        def done(_: bytes) -> None:
            self._residence.dropped &= not syncs

        await _passed_on(self._app, scope, replayed(body, receive), send, done)


async def sent(reply: Reply, send: Send) -> None:
    """Send this reply."""
    for message in reply.messages():
        await send(message)


def _versioned(send: Send, version: int) -> Send:
    """Return a `send` that adds the version to the headers."""
    header = (VERSION_HEADER.lower().encode(), str(version).encode())

    async def told(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), header]}
        await send(message)

    return told


async def _passed_on(app: App, scope: Scope, receive: Receive, send: Send, done: Callable[[bytes], None]) -> None:
    """Let vLLM answer; `done` gets the body of its 200 before it is sent, so that who has the reply finds what it says."""
    succeeded = False

    async def noted(message: Message) -> None:
        nonlocal succeeded
        if message["type"] == "http.response.start":
            succeeded = message["status"] == HTTPStatus.OK
        elif succeeded:
            done(message["body"])
            succeeded = False  # once: the replies are of one piece
        await send(message)

    await app(scope, receive, noted)


def _without_abort(scope: Scope) -> Scope:
    """Return the request with mode=wait in place of mode=abort, vLLM's default, which kills a pooling server at work."""
    query = parse_qs(scope["query_string"].decode())
    if getattr(scope["app"].state, "serving_pooling", None) is None or query.get("mode", ["abort"])[-1] != "abort":
        return scope
    return {**scope, "query_string": urlencode({**query, "mode": "wait"}, doseq=True).encode()}

"""What passes the doors in front of vLLM, and with which version."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from reward_loop.serving.inside.admission import Admission
from reward_loop.serving.inside.exchange import Receive, Scope, Send
from reward_loop.serving.inside.gate import Gate
from reward_loop.serving.inside.reply import Refusal, Reply
from reward_loop.serving.inside.residence import Residence
from tests.serving.inside.updating import Exchange


class Vllm:
    """An application that answers as vLLM does: a stream to what computes, an object to what controls."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.wakes_fully = True
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        query = scope["query_string"].decode()
        self.asked.append(f"{path}?{query}" if query else path)
        await self.may_answer.wait()
        if path == "/v1/chat/completions":
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
            for part in (b"data: 1\n\n", b"data: 2\n\n"):
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
            return
        status = "sleeping" if path == "/wake_up" and not self.wakes_fully else "awake"
        for message in Reply(200, {"status": status}).messages():
            await send({**message, "body": message.get("body", b"").replace(b":", b": ")})


class Doors:
    """The parts of a server that its doors need."""

    def __init__(self, *, pooling: bool = True) -> None:
        self.vllm = Vllm()
        self.gate = Gate()
        self.residence = Residence()
        self.admission = Admission(self.vllm, self.gate, self.residence)
        self.version = 0
        self._state = SimpleNamespace(serving_pooling=object() if pooling else None)

    def scope(self, path: str) -> Scope:
        path, _, query = path.partition("?")
        app = SimpleNamespace(state=self._state)
        return {"type": "http", "method": "POST", "path": path, "query_string": query.encode(), "app": app}

    async def compute(self, path: str, work: Any = None) -> Exchange:
        """Ask for what needs the model."""
        exchange = Exchange({})
        scope = self.scope(path)
        await self.admission.compute(work or self.vllm, lambda: self.version, scope, exchange.receive, exchange.send)
        return exchange

    async def control(self, path: str, body: object = None) -> Exchange:
        """Tell the engine something."""
        exchange = Exchange(body)
        scope = self.scope(path)
        await self.admission.control(scope["path"], scope, exchange.receive, exchange.send)
        return exchange


@pytest.fixture
async def doors() -> Doors:
    return Doors()


@pytest.mark.parametrize("path", ["/classify", "/v1/chat/completions"])
async def test_every_reply_that_was_computed_names_its_version_streams_too(doors: Doors, path: str) -> None:
    doors.version = 4
    exchange = await doors.compute(path)
    assert exchange.headers["x-reward-model-version"] == "4"
    assert len(exchange.sent) == (4 if "chat" in path else 2)


async def test_a_refusal_of_one_that_computes_names_it_too(doors: Doors) -> None:
    async def refuses(*_: Any) -> None:
        raise Refusal(400, "bad_input", "input 0 is empty")

    exchange = await doors.compute("/score", refuses)
    assert (exchange.status, exchange.headers["x-reward-model-version"]) == (400, "0")
    assert exchange.reply["error"]["message"] == "input 0 is empty"


async def test_who_waited_at_the_gate_is_served_by_the_new_version(doors: Doors) -> None:
    async with asyncio.TaskGroup() as group, doors.gate.closed(20):
        waiting = group.create_task(doors.compute("/classify"))
        await asyncio.sleep(0)
        doors.version = 5
        assert doors.vllm.asked == []
    assert waiting.result().headers["x-reward-model-version"] == "5"


async def test_who_waited_at_the_gate_of_a_server_that_fell_asleep_is_refused(doors: Doors) -> None:
    async def close_and_sleep() -> None:
        async with doors.gate.closed(20):
            closed.set()
            await asyncio.sleep(0)
            doors.residence.asleep = True

    closed = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(close_and_sleep())
        await closed.wait()
        with pytest.raises(Refusal, match="the server sleeps"):
            await doors.compute("/classify")
    assert doors.vllm.asked == []


async def test_a_pooling_server_is_never_told_to_abort_a_judge_may_be() -> None:
    for pooling, passed in ((True, ["/pause?mode=wait", "/sleep?mode=wait", "/sleep?level=2&mode=wait"]), (False, None)):
        doors = Doors(pooling=pooling)
        told = ["/pause", "/sleep?mode=abort", "/sleep?level=2"]
        for path in told:
            await doors.control(path)
        assert doors.vllm.asked == (passed or told)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (["/sleep?level=1"], Residence(asleep=True, weights_asleep=True)),
        (["/sleep?level=0"], Residence()),
        (["/sleep?level=2"], Residence(asleep=True, weights_asleep=True, dropped=True)),
        (["/sleep?level=1", "/sleep?level=2"], Residence(asleep=True, weights_asleep=True)),
        (["/sleep?level=2", "/wake_up"], Residence(dropped=True)),
        (["/sleep?level=2", "partly", "/wake_up?tags=weights"], Residence(asleep=True, dropped=True)),
        (["/sleep", "partly", "/wake_up?tags=kv_cache"], Residence(asleep=True, weights_asleep=True)),
        (["/sleep", "partly", "/wake_up?tags=kv_cache", "wholly", "/wake_up?tags=weights"], Residence()),
        (["/sleep?level=2", "/wake_up", "reload_weights"], Residence()),
        (["/sleep?level=2", "/wake_up", "other"], Residence(dropped=True)),
    ],
)
async def test_what_is_in_memory_follows_from_what_the_engine_was_told(
    doors: Doors, calls: list[str], expected: Residence
) -> None:
    for call in calls:
        if call.startswith("/"):
            await doors.control(call)
        elif call in ("partly", "wholly"):
            doors.vllm.wakes_fully = call == "wholly"
        else:
            await doors.control("/collective_rpc", {"method": call})
    assert doors.residence == expected


async def test_a_sleep_that_waits_for_what_is_in_flight_lets_nothing_new_in(doors: Doors) -> None:
    doors.vllm.may_answer.clear()
    async with asyncio.TaskGroup() as group:
        in_flight = group.create_task(doors.compute("/classify"))
        await asyncio.sleep(0)
        sleeping = group.create_task(doors.control("/sleep?mode=wait"))
        await asyncio.sleep(0)
        with pytest.raises(Refusal, match="the server sleeps"):
            await doors.compute("/classify")
        assert doors.vllm.asked == ["/classify"]
        doors.vllm.may_answer.set()
    assert (in_flight.result().status, sleeping.result().status) == (200, 200)
    assert doors.vllm.asked == ["/classify", "/sleep?mode=wait"]

"""/admin does what it is told by those who know its token, and says why when it does not."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reward_loop.router.control import Control
from reward_loop.router.fleet import Fleet, Replica
from tests.router.patience import until

TOKEN = "t0ken"
URL = "http://127.0.0.1:8000"


async def ask(
    control: Control, method: str, path: str, body: Any = None, token: str | None = TOKEN
) -> tuple[int, dict[str, Any]]:
    """Return status and body; `body` is JSON, or bytes as they are."""
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    status, answered, text = await control(method, path, "", headers, content)
    answer: dict[str, Any] = json.loads(text)
    if status >= 400:
        error = answer["error"]
        assert (error["code"], error["type"]) == (status, answered["X-Reward-Router"])
        assert error["message"]
    return status, answer


def message_of(answer: dict[str, Any]) -> str:
    return str(answer["error"]["message"])


def with_one(**counters: int) -> tuple[Control, Fleet, Replica]:
    fleet = Fleet()
    replica = fleet.add("rm", URL)
    for name, count in counters.items():
        setattr(replica, name, count)
    return Control(fleet, TOKEN), fleet, replica


# ---- who may


@pytest.mark.parametrize("token", [None, "", "other", TOKEN + "x", "tökén"])
async def test_admin_wants_its_token(token: str | None) -> None:
    control, fleet, _ = with_one()
    for method, path in (("GET", "/admin/replicas"), ("DELETE", "/admin/replicas"), ("POST", "/admin/nonsense")):
        assert (await ask(control, method, path, {"url": URL}, token))[0] == 401
    assert len(fleet) == 1


async def test_the_token_is_shown_as_a_bearer_token() -> None:
    control, _, _ = with_one()
    for shown, expected in ((f"Bearer {TOKEN}", 200), (f"bearer {TOKEN}", 200), (f"Basic {TOKEN}", 401), (TOKEN, 401)):
        status, _, _ = await control("GET", "/admin/replicas", "", {"authorization": shown}, b"")
        assert status == expected


async def test_without_a_token_of_its_own_admin_is_closed() -> None:
    status, answer = await ask(Control(Fleet(), None), "GET", "/admin/replicas", token="")
    assert status == 401
    assert "admin_token" in message_of(answer)


async def test_metrics_want_no_token() -> None:
    status, headers, text = await with_one()[0]("GET", "/metrics", "", {}, b"")
    assert (status, headers["Content-Type"].split(";")[0]) == (200, "text/plain")
    assert b"reward_router_replica_state" in text


# ---- what it does


async def test_replicas_come_and_go() -> None:
    control, fleet = Control(Fleet(), TOKEN), None
    status, added = await ask(control, "POST", "/admin/replicas", {"model": "rm", "url": "127.0.0.1:8000/"})
    assert (status, added["url"], added["state"]) == (201, URL, "starting")
    _, fleet = await ask(control, "GET", "/admin/replicas")
    assert [replica["url"] for replica in fleet["replicas"]] == [URL]
    status, gone = await ask(control, "DELETE", "/admin/replicas", {"url": URL})
    assert (status, gone["state"]) == (200, "gone")
    assert (await ask(control, "GET", "/admin/replicas"))[1]["replicas"] == []


async def test_an_idle_replica_drains_sleeps_and_wakes_at_once() -> None:
    control, _, replica = with_one()
    for order, state in (("drain", "draining"), ("sleep", "asleep"), ("waking", "waking"), ("wake", "active")):
        status, answer = await ask(control, "POST", f"/admin/replicas/{order}", {"url": URL})
        assert (status, answer["state"], replica.state) == (200, state, state)


@pytest.mark.parametrize(("order", "state"), [("drain", "draining"), ("sleep", "asleep")])
async def test_a_busy_replica_is_waited_for_while_others_are_served(order: str, state: str) -> None:
    control, _, replica = with_one(in_flight=2)
    async with asyncio.TaskGroup() as tasks:
        emptied = tasks.create_task(ask(control, "POST", f"/admin/replicas/{order}", {"url": URL}))
        await until(lambda: replica.state == state)
        status, seen = await ask(control, "GET", "/admin/replicas")
        assert (status, seen["replicas"][0]["in_flight"], emptied.done()) == (200, 2, False)
        replica.in_flight = 0
    assert (await emptied)[0] == 200


async def test_what_does_not_end_in_time_is_said_and_the_replica_gets_nothing_new() -> None:
    control, _, replica = with_one(in_flight=2)
    status, answer = await ask(control, "POST", "/admin/replicas/drain", {"url": URL, "timeout_s": 0.02})
    assert (status, replica.state) == (504, "draining")
    assert f"{URL} has 2 requests in flight after 0.02 s" in message_of(answer)


async def test_who_is_woken_while_it_drains_was_not_drained() -> None:
    control, _, replica = with_one(in_flight=1)
    async with asyncio.TaskGroup() as tasks:
        drained = tasks.create_task(ask(control, "POST", "/admin/replicas/drain", {"url": URL}))
        await until(lambda: replica.state == "draining")
        await ask(control, "POST", "/admin/replicas/wake", {"url": URL})
        replica.in_flight = 0
    status, answer = await drained
    assert status == 409
    assert "it is active, not draining" in message_of(answer)


# ---- what it refuses


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"", "no JSON"),
        ([1], "JSON object"),
        ({"url": URL, "model": "rm", "weight": 3}, "weight"),
        ({"model": "rm"}, "'url' must be text"),
        ({"url": 8000, "model": "rm"}, "8000"),
        ({"url": URL.replace("8000", "8001"), "model": ""}, "'model' must be text"),
        ({"url": "https://127.0.0.1:1", "model": "rm"}, "http://host:port"),
        ({"url": "http://127.0.0.1:99999", "model": "rm"}, "99999"),
        ({"url": "http://127.0.0.1:1/v1", "model": "rm"}, "http://host:port"),
    ],
)
async def test_a_bad_order_is_refused_with_what_is_wrong(body: Any, said: str) -> None:
    control, fleet, _ = with_one()
    status, answer = await ask(control, "POST", "/admin/replicas", body)
    assert (status, len(fleet)) == (400, 1)
    assert said in message_of(answer)


@pytest.mark.parametrize("seconds", [-1, "5", True, None, [1], 1e300])
async def test_a_bad_time_changes_nothing(seconds: Any) -> None:
    control, _, replica = with_one()
    status, _ = await ask(control, "POST", "/admin/replicas/drain", {"url": URL, "timeout_s": seconds})
    assert (status, replica.state) == (400, "starting")


async def test_a_second_replica_at_one_url_is_a_conflict() -> None:
    status, answer = await ask(with_one()[0], "POST", "/admin/replicas", {"model": "other", "url": URL})
    assert status == 409
    assert "'rm' already; remove it first" in message_of(answer)


@pytest.mark.parametrize(
    ("method", "path"),
    [("DELETE", ""), ("POST", "/drain"), ("POST", "/sleep"), ("POST", "/wake")],
    ids=lambda value: value or "/",
)
async def test_an_unknown_replica_is_named_and_so_are_those_that_exist(method: str, path: str) -> None:
    status, answer = await ask(with_one()[0], method, f"/admin/replicas{path}", {"url": "http://127.0.0.1:9"})
    assert status == 404
    assert "127.0.0.1:9'" in message_of(answer)
    assert URL in message_of(answer)


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("PUT", "/admin/replicas", 405),
        ("GET", "/admin/replicas/drain", 405),
        ("POST", "/metrics", 405),
        ("GET", "/admin", 404),
        ("GET", "/admin/replicas/x", 404),
        ("GET", "/administrator", 404),
    ],
)
async def test_other_methods_and_paths_are_refused(method: str, path: str, expected: int) -> None:
    assert (await ask(with_one()[0], method, path, {"url": URL}))[0] == expected


@given(st.binary(max_size=200), st.sampled_from(["", "/drain", "/sleep", "/wake"]), st.sampled_from(["POST", "DELETE"]))
def test_no_body_breaks_it(body: bytes, path: str, method: str) -> None:
    control, fleet, _ = with_one()
    status, _ = asyncio.run(ask(control, method, f"/admin/replicas{path}", body))
    assert (status in (400, 404, 405), len(fleet)) == (True, 1)

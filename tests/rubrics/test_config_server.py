"""GET and POST /config over real HTTP: answers, refusals, races, and what malformed requests can't do."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import io
import json
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from hypothesis import example, given
from hypothesis import strategies as st

from reward_loop.errors import ConfigError
from reward_loop.loop_thread import LoopThread
from reward_loop.rubrics.config_http import MAX_BODY
from reward_loop.rubrics.config_server import ConfigRoutes, ConfigServer
from reward_loop.rubrics.live_config import Change, LiveConfig
from tests.rubrics.live import entry, live_config, reward_config, weights_of

jsonschema: Any = pytest.importorskip("jsonschema", reason="jsonschema, which the tests compare with, is not installed")

NAMES = ("task", "style", "outcome")


class Http:
    """Asks a server; answers are (status, content)."""

    def __init__(self, session: aiohttp.ClientSession, url: str, live: LiveConfig) -> None:
        self.session, self.url, self.live = session, url, live

    async def ask(self, method: str, path: str = "/config", **options: Any) -> tuple[int, Any, aiohttp.ClientResponse]:
        async with self.session.request(method, f"{self.url}{path}", **options) as reply:
            text = await reply.text()
            return reply.status, json.loads(text) if text else None, reply

    async def get(self, path: str = "/config", **options: Any) -> Any:
        return (await self.ask("GET", path, **options))[1]

    async def post(self, body: Any, **headers: str) -> tuple[int, Any]:
        return (await self.ask("POST", json=body, headers=headers))[:2]


@asynccontextmanager
async def serving(live: LiveConfig | None = None, **options: Any) -> AsyncGenerator[Http]:
    live = live or live_config()
    async with ConfigServer(live, **options) as server, aiohttp.ClientSession() as session:
        yield Http(session, server.url, live)


async def test_get_shows_the_active_configuration_with_the_seeds_keys() -> None:
    async with serving() as http:
        shown = await http.get()
        assert shown == {**reward_config().as_dict(), "config_version": 1}
        assert list(shown) == ["schema_version", "per_turn", "episode_end", "config_version"]


async def test_the_seeds_update_is_answered_with_what_holds_after_the_next_reset() -> None:
    async with serving() as http:
        status, answer = await http.post({"per_turn": [{"name": "style", "weight": 0.5}]})
        assert status == 200
        assert (answer["status"], answer["applies"], answer["config_version"]) == ("ok", "next_reset", 2)
        assert answer["config"] == reward_config(style=0.5).as_dict()
        assert await http.get() == {**reward_config().as_dict(), "config_version": 1}
        assert await http.get("/config?pending=1") == {**reward_config(style=0.5).as_dict(), "config_version": 2}
        http.live.begin_episode()
        assert weights_of(await http.get())["style"] == 0.5


async def test_the_flat_form_of_the_seeds_appendix_is_taken() -> None:
    async with serving() as http:
        assert (await http.post({"weights": {"style": 0.5, "outcome": 2}}))[0] == 200
        assert weights_of(await http.get("/config?pending=1")) == {"task": 1.0, "style": 0.5, "outcome": 2.0}


async def test_an_immediate_update_shows_at_once() -> None:
    async with serving() as http:
        assert (await http.post({"weights": {"style": 0.5}, "apply": "immediate"}))[1]["applies"] == "immediate"
        assert weights_of(await http.get())["style"] == 0.5


async def test_an_empty_update_is_ok_and_changes_nothing() -> None:
    async with serving() as http:
        assert (await http.post({}))[0] == 200
        assert http.live.latest_version == 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"weights": {"nobody": 1.0}}, "unknown_rubric"),
        ({"weights": {"style": True}}, "bad_weight"),
        ({"weights": {"style": "1"}}, "bad_weight"),
        ({"schema_version": "2.0"}, "schema_version"),
        ({"per_turn": [{"name": "style", "rubric": "os.system"}]}, "not_updateable"),
        ({"config": {"style": {"threshold": None}}}, "bad_config"),
        ({"wieghts": {}}, "unknown_key"),
        ([], "bad_shape"),
    ],
)
async def test_what_is_wrong_is_a_400_with_a_code(body: Any, code: str) -> None:
    async with serving() as http:
        before = http.live.state
        status, answer = await http.post(body)
        assert (status, answer["status"], answer["error"]["code"]) == (400, "error", code)
        assert len(answer["error"]["message"]) > 20
        assert http.live.state is before


async def test_another_schema_version_is_refused_with_both_versions() -> None:
    async with serving() as http:
        _, answer = await http.post({"schema_version": "2.0"})
        assert (answer["error"]["expected"], answer["error"]["got"]) == ("1.0", "2.0")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nothing",
        b"\xff\xfe",
        b'{"weights": {"style": 1}, "weights": {"style": 2}}',
        b"[" * 100_000,
        b'{"config": {"style": {"words": ' + b"[" * 900 + b"]" * 900 + b"}}}",
        b'{"weights": {"style": 1e999}}',
        b'{"weights": {"style": NaN}}',
        b'{"weights": {"style": -Infinity}}',
        b'{"weights": {"style": 1' + b"0" * 400 + b"}}",
        b'{"weights": {"style": 1' + b"0" * 5000 + b"}}",
        b'{"config": {"style": {"threshold": 1' + b"0" * 400 + b"}}}",
        b'{"weights": {"\\ud800": 1}}',
        b"\x00" * 1000,
    ],
    ids=lambda body: repr(body[:40]),
)
async def test_a_body_that_is_no_update_is_a_400_and_changes_nothing(body: bytes) -> None:
    async with serving() as http:
        before = http.live.state
        status, answer, _ = await http.ask("POST", data=body)
        assert (status, answer["status"]) == (400, "error")
        assert http.live.state is before


async def test_a_body_of_more_than_a_mebibyte_is_a_413() -> None:
    async with serving() as http:
        words = {"config": {"style": {"words": ["x" * (MAX_BODY - 100)]}}}
        assert (await http.post(words))[0] == 200
        status, answer, _ = await http.ask("POST", data=io.BytesIO(b" " * (MAX_BODY + 1)))
        assert (status, answer["error"]["code"]) == (413, "too_large")


async def test_a_small_body_that_unpacks_to_a_large_one_is_a_413() -> None:
    async with serving() as http:
        headers = {"Content-Encoding": "gzip"}
        status, _, _ = await http.ask("POST", data=gzip.compress(b" " * 8 * MAX_BODY), headers=headers)
        assert status == 413
        status, _, _ = await http.ask("POST", data=b"no gzip at all", headers=headers)
        assert status == 400


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
async def test_other_methods_are_a_405(method: str) -> None:
    async with serving() as http:
        status, answer, reply = await http.ask(method)
        assert (status, answer["error"]["code"], reply.headers["Allow"]) == (405, "method_not_allowed", "GET, HEAD, POST")
        assert (await http.ask(method, "/config/schema"))[0] == 405


async def test_head_is_answered_without_a_body() -> None:
    async with serving() as http:
        status, content, reply = await http.ask("HEAD")
        assert (status, content, reply.headers["ETag"]) == (200, None, '"1"')


@pytest.mark.parametrize("query", ["pending=yes", "after=x", "after=", "after=-1", "after=1&wait_s=nan", "after=1&wait_s=-1"])
async def test_a_query_that_is_wrong_is_a_400(query: str) -> None:
    async with serving() as http:
        assert (await http.ask("GET", f"/config?{query}"))[0] == 400


async def test_two_trainers_do_not_overwrite_each_other_by_mistake() -> None:
    async with serving() as http:
        _, _, reply = await http.ask("GET")
        tag = reply.headers["ETag"]
        assert (await http.post({"weights": {"task": 2.0}}, **{"If-Match": tag}))[0] == 200
        status, answer = await http.post({"weights": {"task": 3.0}}, **{"If-Match": tag})
        assert (status, answer["error"]["code"]) == (412, "conflict")
        assert weights_of(http.live.pending)["task"] == 2.0


async def test_the_tag_of_the_active_configuration_says_which_one_is_the_latest() -> None:
    async with serving() as http:
        await http.post({"weights": {"task": 2.0}})
        active = (await http.ask("GET"))[2].headers["ETag"]
        pending = (await http.ask("GET", "/config?pending=1"))[2].headers["ETag"]
        assert active != pending
        assert (await http.post({}, **{"If-Match": active}))[0] == 200
        assert (await http.post({}, **{"If-Match": pending}))[0] == 200


@pytest.mark.parametrize("tag", ['"0"', '"2"', 'W/"1"', "", "x", '"\u0661"', '"-1"', '"1", "2"', '"' + "1" * 50 + '"'])
async def test_a_tag_of_another_version_is_a_412(tag: str) -> None:
    async with serving() as http:
        assert (await http.post({"weights": {"task": 2.0}}, **{"If-Match": tag}))[0] == 412
        assert (await http.post({"weights": {"task": 2.0}}, **{"If-Match": "*"}))[0] == 200


async def test_of_many_who_edit_the_same_version_one_wins() -> None:
    async with serving() as http, asyncio.TaskGroup() as tasks:
        bodies = [{"weights": dict.fromkeys(NAMES, float(number + 2))} for number in range(50)]
        posts = [tasks.create_task(http.post(body, **{"If-Match": '"1"'})) for body in bodies]
        statuses = [(await post)[0] for post in posts]
        assert sorted(statuses) == [200] + [412] * 49
        assert weights_of(http.live.pending)["task"] == statuses.index(200) + 2.0


async def test_a_thousand_readers_never_see_half_an_update() -> None:
    live = live_config(task=0.0, style=0.0, outcome=0.0)
    async with ConfigServer(live) as server, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        http = Http(session, server.url, live)
        seen = set[tuple[float, ...]]()

        async def read(path: str) -> None:
            seen.add(tuple(weights_of(await http.get(path)).values()))

        async def write(number: int) -> None:
            status, _ = await http.post({"weights": dict.fromkeys(NAMES, float(number)), "apply": "immediate"})
            assert status == 200

        async with asyncio.TaskGroup() as tasks:
            for number in range(1000):
                tasks.create_task(read("/config" if number % 2 else "/config?pending=1"))
                if number % 20 == 0:
                    tasks.create_task(write(number))
        assert {len(set(weights)) for weights in seen} == {1}
        assert len(seen) > 2
        assert live.latest_version == 50


async def test_the_author_that_a_client_names_is_in_the_audit() -> None:
    async with serving() as http:
        await http.post({"weights": {"task": 2.0}}, **{"X-Config-Author": "anna"})
        await http.post({"weights": {"task": 3.0}})
        assert [change.who for change in http.live.audit] == ["anna", "127.0.0.1"]


async def test_who_has_no_token_sees_and_changes_nothing() -> None:
    async with serving(token="s3cret") as http:
        before = http.live.state
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "s3cret"}, {"Authorization": "Basic s3cret"}):
            for method, path in (("GET", "/config"), ("POST", "/config"), ("GET", "/config/schema"), ("PUT", "/config")):
                status, answer, _ = await http.ask(method, path, headers=headers)
                assert (status, answer["error"]["code"]) == (401, "unauthorized")
        assert http.live.state is before
        assert (await http.post({"weights": {"task": 2.0}}, Authorization="Bearer s3cret"))[0] == 200


async def test_without_a_token_a_web_page_is_refused() -> None:
    async with serving() as http:
        status, answer = await http.post({"weights": {"task": 2.0}}, Origin="http://evil.example")
        assert (status, answer["error"]["code"]) == (403, "forbidden")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_a_host_that_others_can_reach_needs_a_token(host: str) -> None:
    with pytest.raises(ConfigError, match="token"):
        ConfigServer(live_config(), host=host)
    ConfigServer(live_config(), host=host, token="s3cret")


async def test_a_change_that_can_not_be_recorded_is_a_503_and_not_made() -> None:
    def full(change: Change) -> None:
        raise OSError(28, "No space left on device")

    async with serving(live_config(record=full)) as http:
        status, answer = await http.post({"weights": {"task": 2.0}})
        assert (status, answer["error"]["code"]) == (503, "not_recorded")
        assert http.live.latest_version == 1


async def test_a_process_that_follows_says_where_updates_go() -> None:
    live = live_config()
    live.follows = "http://127.0.0.1:7"
    async with serving(live) as http:
        status, answer = await http.post({"weights": {"task": 2.0}})
        assert (status, answer["error"]["code"]) == (409, "read_only")
        assert "http://127.0.0.1:7" in answer["error"]["message"]


class Watched(LiveConfig):
    """Says when somebody watches it, and how many do."""

    def __init__(self) -> None:
        super().__init__(reward_config())
        self.watching = 0
        self.begun = asyncio.Event()

    def watch(self, changed: Callable[[], object]) -> Callable[[], None]:
        stop = super().watch(changed)
        self.watching += 1
        self.begun.set()

        def stopped() -> None:
            self.watching -= 1
            stop()

        return stopped


async def test_who_waits_for_news_is_answered_at_the_change() -> None:
    live = Watched()
    async with serving(live) as http, asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(http.get("/config?after=1&wait_s=60"))
        await live.begun.wait()
        await http.post({"weights": {"task": 2.0}})
        news = await waiting
        assert (news["config_version"], news["immediate"]["config_version"]) == (2, 1)
        assert (await http.get("/config?after=1&wait_s=60"))["config_version"] == 2
        assert (await http.get("/config?after=7&wait_s=60"))["config_version"] == 2
        assert (await http.get("/config?after=2&wait_s=0.01"))["config_version"] == 2
        assert live.watching == 0


async def test_a_server_that_ends_does_not_wait_for_those_who_wait() -> None:
    live = Watched()
    async with asyncio.TaskGroup() as tasks, aiohttp.ClientSession() as session:
        async with ConfigServer(live) as server:
            http = Http(session, server.url, live)
            waiting = tasks.create_task(http.get("/config?after=1&wait_s=60"))
            await live.begun.wait()
        assert (await waiting)["config_version"] == 1


async def test_it_mounts_into_an_application_of_the_users_beside_openenvs_routes() -> None:
    app, live = web.Application(client_max_size=10), live_config()

    async def openenv(request: web.Request) -> web.Response:
        return web.json_response(request.path)

    for path in ("/reset", "/step", "/state", "/schema", "/metadata", "/health", "/ws", "/mcp"):
        app.router.add_route("*", path, openenv)
    ConfigRoutes(live).mount(app)
    ConfigRoutes(live).mount(app, "/rewards")
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with aiohttp.ClientSession() as session:
            http = Http(session, f"http://127.0.0.1:{runner.addresses[0][1]}", live)
            assert await http.get("/schema") == "/schema"
            assert (await http.post({"weights": {"task": 2.0}}))[0] == 200
            assert weights_of(await http.get("/rewards/config?pending=1"))["task"] == 2.0
    finally:
        await runner.cleanup()


async def test_the_schema_names_the_rubrics_and_what_of_them_may_change() -> None:
    async with serving() as http:
        schema = await http.get("/config/schema")
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate({"per_turn": [{"name": "style", "config": {"threshold": 1}}], "weights": {"outcome": 0}}, schema)
        jsonschema.validate(await http.get(), schema)
        for wrong in ({"per_turn": [{"name": "outcome"}]}, {"config": {"style": {"model": "large"}}}, {"weights": {"x": 1}}):
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate(wrong, schema)


@contextmanager
def served(live: LiveConfig) -> Generator[int]:
    """A server in a thread, and its port, for tests that try many requests."""
    thread = LoopThread("config-server")
    server = ConfigServer(live)
    thread.run(server.__aenter__())
    try:
        yield server.port
    finally:
        thread.close(server.__aexit__)


@pytest.fixture(scope="module")
def target() -> Generator[tuple[LiveConfig, int]]:
    live = live_config()
    with served(live) as port:
        yield live, port


def post(port: int, body: bytes) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", "/config", body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        connection.close()


KEYS = [
    "schema_version",
    "per_turn",
    "episode_end",
    "weights",
    "enabled",
    "config",
    "apply",
    "config_version",
    "next_reset",
    "1.0",
]
FIELDS = ["name", "rubric", "weight", "on_error", "timeout_s", "threshold", "words", "scale"]
words = st.sampled_from([*KEYS, *FIELDS, *NAMES])
scalars = st.none() | st.booleans() | st.integers() | st.floats() | words | st.text(max_size=4)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words | st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)
names = st.sampled_from(NAMES)
entries = st.fixed_dictionaries(
    {},
    optional={
        "name": names | scalars,
        "weight": st.floats() | scalars,
        "enabled": st.booleans() | scalars,
        "config": st.dictionaries(words, documents, max_size=2) | scalars,
        "rubric": words,
        "on_error": documents,
    },
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        "per_turn": st.lists(entries, max_size=3) | documents,
        "episode_end": st.lists(entries, max_size=2) | documents,
        "weights": st.dictionaries(names | words, st.floats() | scalars, max_size=3) | documents,
        "enabled": st.dictionaries(names, st.booleans() | scalars) | documents,
        "config": st.dictionaries(names, documents) | documents,
        "apply": words | scalars,
        "schema_version": words | scalars,
    },
)


def check_answer(live: LiveConfig, port: int, body: bytes) -> tuple[int, Any]:
    before = live.state
    status, answer = post(port, body)
    assert status in (200, 400)
    if status == 400:
        assert answer["error"]["code"]
        assert answer["error"]["message"]
        assert live.state is before
    else:
        assert answer["config"] == live.pending.as_dict()
        assert all(abs(weight) < float("inf") for weight in weights_of(answer["config"]).values())
    return status, answer


@given(st.binary(max_size=200) | documents.map(lambda document: json.dumps(document).encode()))
@example(b'{"weights": {"style": 1e999}}')
def test_any_body_is_taken_whole_or_a_400_that_changes_nothing(target: tuple[LiveConfig, int], body: bytes) -> None:
    check_answer(*target, body)


@given(bodies)
def test_what_is_almost_an_update_is_taken_only_if_the_schema_allows_it(target: tuple[LiveConfig, int], body: Any) -> None:
    live, port = target
    schema = json.loads(get(port, "/config/schema"))
    status, answer = check_answer(live, port, json.dumps(body).encode())
    allowed = jsonschema.Draft202012Validator(schema).is_valid(body)
    if status == 200:
        assert allowed
    elif allowed:  # what a schema can't say
        assert answer["error"]["code"] in ("duplicate", "bad_weight", "bad_config", "bad_value", "not_updateable", "conflict")


def get(port: int, path: str) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        return connection.getresponse().read()
    finally:
        connection.close()


@given(st.binary(max_size=300))
@example(b"POST /config HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{}")
@example(b"POST /config HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")
@example(b"POST /config HTTP/1.1\r\nHost: a\r\nContent-Length: 40\r\nContent-Length: 2\r\n\r\n{}")
def test_a_request_that_is_no_http_or_breaks_off_changes_nothing_and_the_server_goes_on(
    target: tuple[LiveConfig, int], sent: bytes
) -> None:
    live, port = target
    before = live.state
    with socket.create_connection(("127.0.0.1", port), timeout=30) as raw:
        raw.sendall(sent)
        raw.shutdown(socket.SHUT_WR)
        while raw.recv(65_536):
            pass
    assert live.state is before
    assert entry(json.loads(get(port, "/config")), "task")

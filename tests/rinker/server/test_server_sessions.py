"""Sessions, keys and models over HTTP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from reward_loop.errors import ConfigError

pytest.importorskip("tinker", reason="the Tinker SDK is not installed: pip install 'reward-loop[tinker]'")

from reward_loop.rinker.server.hub import Hub
from reward_loop.rinker.server.refusal import Refusal
from reward_loop.rinker.server.serve import serving
from reward_loop.rinker.server.sessions import Model, SamplingSession
from reward_loop.rinker.server.settings import ServerSettings
from reward_loop.rinker.types import LoraConfig, ModelSpec
from tests.rinker.recording_backend import RecordingBackend
from tests.rinker.server.http_caller import MODEL, calling


@pytest.mark.parametrize(("key", "status"), [("tml-anyone", 200), ("anyone", 401), ("", 401)])
async def test_without_a_key_of_its_own_a_server_takes_any_that_looks_like_one(key: str, status: int) -> None:
    async with calling(key) as caller:
        assert (await caller.post("/create_session", {})).status == status


@pytest.mark.parametrize(("key", "status"), [("tml-right", 200), ("tml-wrong", 401), ("tml-rightx", 401), ("tml-ü", 401)])
async def test_with_a_key_of_its_own_a_server_takes_that_one_only(key: str, status: int) -> None:
    async with calling(key, api_key="tml-right") as caller:
        said = await caller.post("/create_session", {})
        assert said.status == status
        assert (await caller.get("/get_server_capabilities")).status == status
        assert b"tml-right" not in said.raw


async def test_a_request_without_a_key_is_refused_and_health_is_for_everyone() -> None:
    async with calling() as caller:
        del caller.client.headers["X-API-Key"]
        assert (await caller.post("/create_session", {})).status == 401
        assert (await caller.get("/healthz")).json == {"status": "ok"}


async def test_a_server_that_others_can_reach_needs_a_key() -> None:
    with pytest.raises(ConfigError, match="needs an api_key"):
        async with serving(RecordingBackend(), ServerSettings(host="0.0.0.0", port=0)):
            pass


async def test_a_port_that_is_taken_is_named() -> None:
    async with calling() as caller:
        port = int(caller.url.rpartition(":")[2])
        with pytest.raises(ConfigError, match=f"port {port}"):
            async with serving(RecordingBackend(), ServerSettings(port=port)):
                pass


async def test_what_is_not_served_says_so() -> None:
    async with calling() as caller:
        assert (await caller.get("/audit")).status == 404
        assert (await caller.get("/asample")).status == 405
        assert "not served here" in (await caller.post("/create_custom_loss", {})).json["detail"]


async def test_clients_learn_how_to_speak() -> None:
    async with calling(compress=True, max_chunk_datums=7, max_chunk_bytes=8) as caller:
        config = (await caller.post("/client/config", {"sdk_version": "0.38.0"})).json
        assert config["pjwt_auth_enabled"] is False
        assert (config["proto_compress_fwdbwd"], config["fwdbwd_max_chunk_len"]) == (True, 7)
        assert config["fwdbwd_max_chunk_bytes_count"] == 8
        assert (await caller.post("/client/dynamic_config", {})).json["sample_cancel_enabled"] is True
        assert (await caller.post("/telemetry", {"events": []})).json == {"status": "accepted"}


async def test_a_session_that_is_finished_is_gone_and_takes_its_models_along() -> None:
    async with calling() as caller:
        session = await caller.session()
        model = await caller.model(session)
        sampler = await caller.sampler(session)
        assert (await caller.post("/session_heartbeat", {"session_id": session})).status == 200
        assert (await caller.post(f"/sessions/{session}/finish", {"reason": {"type": "success"}})).status == 200
        assert (await caller.post("/session_heartbeat", {"session_id": session})).status == 410
        assert (await caller.post("/get_info", {"model_id": model})).status == 410
        assert (await caller.get(f"/samplers/{sampler}")).status == 404
        assert caller.backend.asked("unload_model") == [("unload_model", model)]
        assert caller.backend.asked("close_sampling_session") == [("close_sampling_session", sampler)]
        assert (await caller.post(f"/sessions/{session}/finish", {})).status == 200


async def test_a_session_that_never_was_is_told_apart_from_one_that_has_ended() -> None:
    async with calling() as caller:
        said = await caller.post("/session_heartbeat", {"session_id": "s1"})
        assert said.status == 404
        assert "started anew" in said.json["detail"]
        assert (await caller.post("/create_model", {"session_id": "s1", "model_seq_id": 0, **MODEL})).status == 404
        assert (await caller.post("/get_info", {"model_id": "s1:train:0"})).status == 404


async def test_what_waits_in_a_session_fails_when_it_is_finished() -> None:
    async with calling() as caller:
        caller.backend.open.clear()
        session = await caller.session()
        sampler = await caller.sampler(session)
        body = {"sampling_session_id": sampler, "seq_id": 0, "prompt": {"chunks": []}, "sampling_params": {}}
        promised = await caller.post("/asample", body)
        await caller.post(f"/sessions/{session}/finish", {})
        failed = await caller.post("/retrieve_future", {"request_id": promised.json["request_id"]})
        assert failed.json == {"error": "the request was cancelled", "category": "user"}


async def test_more_sessions_than_allowed_are_told_to_come_later() -> None:
    async with calling(max_sessions=1) as caller:
        session = await caller.session()
        said = await caller.post("/create_session", {})
        assert (said.status, said.headers["Retry-After"]) == (429, "5")
        await caller.post(f"/sessions/{session}/finish", {})
        assert (await caller.post("/create_session", {})).status == 200


async def test_a_models_name_is_made_of_its_session_and_its_number() -> None:
    async with calling() as caller:
        session = await caller.session()
        body = {
            "session_id": session,
            "model_seq_id": 3,
            **MODEL,
            "user_metadata": {"run": "a"},
            "optimizer_config": {"type": "adamw"},
        }
        first = await caller.post("/create_model", body)
        assert (await caller.post("/create_model", body)).json == first.json
        made = await caller.post("/retrieve_future", first.json)
        assert made.json == {"model_id": f"{session}:train:3", "type": "create_model"} or made.status == 400
        [call] = caller.backend.asked("create_model")
        assert call == ("create_model", ModelSpec("base", lora=LoraConfig(rank=8)), {"run": "a"})


async def test_a_model_from_state_has_the_name_that_its_client_works_out() -> None:
    async with calling() as caller:
        session = await caller.session()
        body = {"session_id": session, "model_seq_id": 1, "path": "tinker://m/weights/w", "optimizer": True}
        made = await caller.result("/load_weights", body)
        assert made.json["model_id"] == f"{session}:train:1"
        info = (await caller.post("/get_info", {"model_id": f"{session}:train:1"})).json
        assert (info["model_id"], info["is_lora"]) == (f"{session}:train:1", False)
        assert caller.backend.asked("create_model_from_state") == [
            ("create_model_from_state", "tinker://m/weights/w", True, None, None)
        ]


async def test_what_the_wire_has_no_words_for_is_said_in_fields_of_our_own() -> None:
    async with calling() as caller:
        session = await caller.session()
        fields = {"kind": "seq_cls", "num_labels": 2, "seed": 5, "lora_config": None, "base_model": "base"}
        await caller.result("/create_model", {"session_id": session, "model_seq_id": 0, **fields})
        assert caller.backend.asked("create_model")[0][1] == ModelSpec("base", "seq_cls", None, 2, 5)


async def test_more_models_than_allowed_are_refused_until_one_is_unloaded() -> None:
    async with calling(max_models=1) as caller:
        session = await caller.session()
        model = await caller.model(session)
        refused = await caller.result("/create_model", {"session_id": session, "model_seq_id": 1, **MODEL})
        assert refused.json["category"] == "user"
        assert "max_models" in refused.json["error"]
        assert (await caller.result("/unload_model", {"model_id": model})).json["type"] == "unload_model"
        assert await caller.model(session, 2) == f"{session}:train:2"


async def test_a_model_that_can_not_be_made_is_the_users_error() -> None:
    async with calling() as caller:
        body = {"session_id": await caller.session(), "model_seq_id": 0, "base_model": "missing"}
        failed = await caller.result("/create_model", body)
        assert failed.json == {"error": "there is no base model missing", "category": "user"}


class ManualClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@contextlib.asynccontextmanager
async def working(clock: ManualClock, **settings: float | None) -> AsyncGenerator[Hub]:
    hub = Hub(RecordingBackend(), ServerSettings.model_validate(settings), clock)
    started = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(hub.run(started))
        await started.wait()
        yield hub
        hub.stop()


async def test_a_session_without_a_sign_of_life_is_ended() -> None:
    clock = ManualClock()
    async with working(clock, session_timeout_s=10.0) as hub:
        silent, lively = (hub.sessions.begin(clock()).id for _ in range(2))
        hub.sessions.models["m"] = Model("m", "behind", silent, "base")
        hub.sessions.sampling["p"] = SamplingSession("p", lively, "base")
        clock.now += 8
        hub.sessions.sampler("p", clock())  # using what a session has keeps it alive
        clock.now += 8
        hub.tidy()
        with pytest.raises(Refusal, match="no sign of life"):
            hub.sessions.get(silent, clock())
        assert hub.sessions.get(lively, clock()).id == lively
        assert hub.sessions.models == {}


async def test_sessions_may_live_for_ever() -> None:
    clock = ManualClock()
    async with working(clock, session_timeout_s=None) as hub:
        session = hub.sessions.begin(clock()).id
        clock.now += 1e9
        hub.tidy()
        assert hub.sessions.get(session, clock()).id == session

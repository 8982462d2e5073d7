"""The other endpoints, and what is left to vLLM."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from reward_loop.serving.server import VLLMServer
from reward_loop.sync.host import host_id
from tests.vllm_servers import MAX_TOKENS, ask

pytestmark = pytest.mark.vllm


async def test_health_says_what_is_served(reward_server: VLLMServer) -> None:
    served = {"type": "reward_model", "model": "reward", "max_model_len": MAX_TOKENS, "pooling": "LAST"}
    assert await ask(reward_server.url, "/health") == (200, {"status": "ok", "asleep": False, **served})


async def test_world_size_and_version_are_there(reward_server: VLLMServer) -> None:
    assert await ask(reward_server.url, "/get_world_size") == (200, {"world_size": 1})
    assert await ask(reward_server.url, "/get_world_size?include_dp=false") == (200, {"world_size": 1})
    status, runtime = await ask(reward_server.url, "/runtime_version")
    assert status == 200
    assert runtime == {"version": 0, "device": "cpu", "host": host_id(), "gpus": [], "sync": True, "busy": None}


async def test_vllms_own_score_still_works(reward_server: VLLMServer) -> None:
    for body in ({"text_1": "a", "text_2": "b"}, {"queries": "a", "documents": ["b", "c"]}):
        status, reply = await ask(reward_server.url, "/score", {"model": "reward", **body})
        assert status == 200, reply
        assert reply["object"] == "list"


@pytest.mark.parametrize(
    ("body", "words"), [(b"{", "not JSON"), (b"[1]", "a JSON list"), (b"\xff", "is not JSON"), (b"", "not JSON")]
)
async def test_a_body_that_is_no_json_object_is_refused(reward_server: VLLMServer, body: bytes, words: str) -> None:
    async with aiohttp.ClientSession() as session, session.post(reward_server.url + "/score", data=body) as reply:
        assert reply.status == 400
        assert words in (await reply.json())["error"]["message"]


async def test_clients_who_hang_up_leave_a_server_that_works(reward_server: VLLMServer) -> None:
    many = {"input": ["seven " * 80] * 256}
    async with aiohttp.ClientSession() as session:
        for _ in range(5):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await session.post(reward_server.url + "/score", json=many)
    assert (await ask(reward_server.url, "/score", {"input": "a"}))[0] == 200


async def test_a_pooling_server_told_to_abort_what_is_in_flight_finishes_it(reward_server: VLLMServer) -> None:
    async with asyncio.TaskGroup() as group:
        scored = [group.create_task(ask(reward_server.url, "/score", {"input": ["seven " * 80] * 64})) for _ in range(4)]
        for _ in range(5):
            assert (await ask(reward_server.url, "/pause?mode=abort", method="POST"))[0] == 200
            assert (await ask(reward_server.url, "/resume", method="POST"))[0] == 200
    assert [task.result()[0] for task in scored] == [200] * 4

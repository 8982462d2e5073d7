"""A generative server: its endpoints, seeded prompts, and sleep."""

from __future__ import annotations

import pytest

from reward_loop.serving.server import VLLMServer
from tests.vllm_servers import MAX_TOKENS, ask

pytestmark = pytest.mark.vllm


async def test_health_says_that_it_generates(judge_server: VLLMServer) -> None:
    served = {"type": "generative", "model": "judge", "max_model_len": MAX_TOKENS}
    assert await ask(judge_server.url, "/health") == (200, {"status": "ok", "asleep": False, **served})


async def test_it_can_not_score(judge_server: VLLMServer) -> None:
    status, reply = await ask(judge_server.url, "/score", {"input": "a"})
    assert status == 400
    assert "judge is no reward model" in reply["error"]["message"]


async def test_a_seeded_prompt_of_several_steps_gives_the_same_text_each_time(judge_server: VLLMServer) -> None:
    request = {"model": "judge", "prompt": "six times seven " * 25, "seed": 7, "temperature": 1.0, "max_tokens": 8, "n": 2}
    replies = [await ask(judge_server.url, "/v1/completions", request) for _ in range(3)]
    assert [status for status, _ in replies] == [200, 200, 200]
    texts = [[choice["text"] for choice in body["choices"]] for _, body in replies]
    assert texts[0] == texts[1] == texts[2]
    assert texts[0][0] != texts[0][1]


@pytest.mark.parametrize("level", [1, 2])
async def test_it_says_the_same_after_a_sleep(judge_server: VLLMServer, level: int) -> None:
    request = {"model": "judge", "prompt": "six times seven", "temperature": 0.0, "max_tokens": 12}
    _, before = await ask(judge_server.url, "/v1/completions", request)
    await ask(judge_server.url, f"/sleep?level={level}&mode=wait", method="POST")
    await ask(judge_server.url, "/wake_up", method="POST")
    if level == 2:
        assert (await ask(judge_server.url, "/v1/completions", request))[0] == 409
        await ask(judge_server.url, "/collective_rpc", {"method": "reload_weights"})
    _, after = await ask(judge_server.url, "/v1/completions", request)
    assert after["choices"] == before["choices"]

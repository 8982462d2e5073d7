"""Chat completions: replies, errors, keys, and what is reported to the rate limit."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import pickle
import subprocess
import sys
import warnings
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
import uvloop

from reward_loop.errors import ConfigError, RequestRejected, RewardServerError, ServerAsleep, ServerUnavailable, TooManyRequests
from reward_loop.limits.current import under
from reward_loop.scoring.chat import chat_complete
from reward_loop.scoring.chat_reply import ChatReply, ChatUsage
from reward_loop.scoring.transport import MAX_BODY_BYTES
from tests.limits.booked import Booked
from tests.scoring.service import HANG, HANG_UP, HANG_UP_MIDWAY, Answer, completion, completions, service

QUESTION = [{"role": "user", "content": "Is 6 * 7 = 42?"}]
KEY = "sk-very-secret-0123456789"


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("JUDGE_KEY", KEY)
    return KEY


async def ask(*answers: Answer, **options: Any) -> ChatReply:
    async with service(*answers) as judge:
        return await chat_complete(QUESTION, model="judge", base_url=judge.base_url, api_key_env=None, **options)


# -- replies ---------------------------------------------------------------------------------------------------------


async def test_a_reply_holds_what_the_model_wrote() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12, "details": {"cached": 0}}
    reply = await ask(completion("yes", usage))
    assert (reply.text, reply.finish_reason, reply.model, reply.tokens) == ("yes", "stop", "judge-1", 12)
    assert reply.usage == ChatUsage(prompt_tokens=9, completion_tokens=3, total_tokens=12)


async def test_a_reply_has_the_structure_of_the_openai_client() -> None:
    content = [{"token": "yes", "logprob": -0.5, "bytes": [1], "top_logprobs": [{"token": "no", "logprob": -1.5}]}]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "yes",
        "refusal": None,
        "reasoning": "6 * 7 is 42",
        "tool_calls": [],
    }
    choices = [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": {"content": content}}]
    result = await ask((200, {}, json.dumps({"id": "chat-1", "object": "chat.completion", "created": 1, "choices": choices})))
    first = result.choices[0]
    assert (result.id, first.message.content, first.message.reasoning) == ("chat-1", "yes", "6 * 7 is 42")
    assert first.logprobs is not None
    assert first.logprobs.content is not None
    assert [(token.token, token.logprob) for token in first.logprobs.content[0].top_logprobs] == [("no", -1.5)]
    assert pickle.loads(pickle.dumps(result)) == result


async def test_all_choices_are_there() -> None:
    reply = await ask(completions(["yes", "no", None]), n=3)
    assert [choice.message.content for choice in reply.choices] == ["yes", "no", None]


async def test_sampling_parameters_go_to_the_service_as_they_are() -> None:
    async with service(completion()) as judge:
        await chat_complete(QUESTION, model="judge", base_url=judge.base_url, api_key_env=None, temperature=0.0, stop=["\n"])
        assert judge.asked == [{"model": "judge", "messages": QUESTION, "temperature": 0.0, "stop": ["\n"]}]


async def test_a_service_that_counts_nothing_is_fine() -> None:
    booked = Booked()
    with under(booked):
        assert (await ask(completion())).usage is None
    assert booked.tokens == []


async def test_behind_the_router_it_is_found_by_its_address_and_gets_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with service(completion()) as judge:
        address = judge.base_url.removeprefix("http://")
        assert (await chat_complete(QUESTION, model="judge", reward_router_address=address)).text == "yes"
        assert "Authorization" not in judge.headers[0]


async def test_a_request_may_be_passed_as_a_whole() -> None:
    async with service(completion(" 1 ")) as judge:
        request = {"messages": QUESTION, "temperature": 0.7, "max_tokens": 4096}
        result = await chat_complete(router_address=judge.address, chat_complete_request=request)
        assert (result.choices[0].message.content or "").strip() == "1"
        await chat_complete(router_address=judge.address, chat_complete_request=request, model="b", temperature=0.0)
        assert judge.asked == [request, {**request, "model": "b", "temperature": 0.0}]
        assert "Authorization" not in judge.headers[0]


async def test_the_router_gets_the_key_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROUTER_TOKEN", "token-of-the-router")
    async with service(completion()) as judge:
        await chat_complete(QUESTION, router_address=judge.address, api_key_env="ROUTER_TOKEN")
        assert judge.headers[0]["Authorization"] == "Bearer token-of-the-router"


async def test_the_version_of_the_weights_is_the_reward_servers_own_word() -> None:
    status, _, text = completion("yes", version="2026-01-01")
    assert (await ask((status, {}, text))).version is None
    assert (await ask((status, {"X-Reward-Model-Version": "0"}, text))).version == 0


async def test_an_empty_text_that_the_model_wrote_is_its_text() -> None:
    assert (await ask(completion(""))).text == ""


# -- what is no reply ------------------------------------------------------------------------------------------------

NO_REPLIES = [
    (200, {}, '{"choices": []}'),
    (200, {}, '{"choices": [{"message": {}}]}'),
    (200, {}, '{"choices": [{"text": "yes"}]}'),
    (200, {}, '{"error": {"message": "overloaded"}}'),
    (200, {}, '"yes"'),
    (200, {}, ""),
    (200, {}, "<html>"),
    (200, {}, '{"choices": [' * 2000),
    completion(usage={"total_tokens": -5}),
    completion(usage={"total_tokens": "many"}),
]


@pytest.mark.parametrize("answer", NO_REPLIES, ids=range(len(NO_REPLIES)))
async def test_a_body_without_a_text_is_an_error_and_never_an_empty_text(answer: Answer) -> None:
    with pytest.raises(RewardServerError, match=r"sent no chat completion \(") as raised:
        await ask(answer)
    assert answer[2][:50] in str(raised.value)


async def test_a_message_without_a_text_keeps_its_structure_and_has_no_text() -> None:
    reply = await ask(completion(None))
    assert reply.choices[0].message.content is None
    with pytest.raises(RewardServerError, match="wrote no text"):
        _ = reply.text


@pytest.mark.parametrize("status", [500, 504, 529])
async def test_a_service_that_fails_is_unavailable(status: int) -> None:
    with pytest.raises(ServerUnavailable, match=f"answered {status}: out of memory"):
        await ask((status, {}, "out of memory"))


@pytest.mark.parametrize("failure", [HANG_UP, HANG_UP_MIDWAY, (502, {}, ""), (503, {}, ""), (429, {"Retry-After": "0"}, "")])
async def test_what_may_pass_is_tried_again(failure: Answer) -> None:
    assert (await ask(failure, failure, completion())).text == "yes"
    with pytest.raises(RewardServerError, match="3 attempts"):
        await ask(failure, failure, failure, completion())


async def test_behind_the_router_it_is_tried_again_until_the_deadline() -> None:
    async with service((503, {}, "no server yet")) as router:
        with pytest.raises(ServerUnavailable, match="no server yet"):
            await chat_complete(QUESTION, router_address=router.address, timeout_s=1.5)
        assert len(router.asked) > 3


async def test_a_judge_that_sleeps_is_not_asked_again() -> None:
    async with service((503, {"X-Reward-Router": "asleep"}, "")) as router:
        with pytest.raises(ServerAsleep, match="hold a lease"):
            await chat_complete(QUESTION, router_address=router.address)
        assert len(router.asked) == 1


@pytest.mark.parametrize("answer", [HANG_UP, HANG_UP_MIDWAY])
async def test_a_service_that_hangs_up_is_unavailable(answer: Answer) -> None:
    with pytest.raises(ServerUnavailable, match="can't be reached"):
        await ask(answer)


async def test_a_service_that_is_not_there_is_unavailable() -> None:
    async with service(completion()) as judge:
        gone = judge.base_url
    with pytest.raises(
        ServerUnavailable, match=f"{gone}/v1/chat/completions can't be reached in 3 attempts: ClientConnectorError"
    ):
        await chat_complete(QUESTION, model="judge", base_url=gone, api_key_env=None)


async def test_a_service_that_hangs_is_unavailable_after_the_timeout() -> None:
    with pytest.raises(ServerUnavailable, match=r"did not answer within 0\.2 s"):
        await ask(HANG, timeout_s=0.2)


async def test_a_request_that_is_refused_keeps_the_beginning_of_the_body() -> None:
    with pytest.raises(RequestRejected, match="answered 400: too long") as raised:
        await ask((400, {}, "too long" + "g" * 100_000))
    assert raised.value.status == 400
    assert raised.value.body.startswith("too long")
    assert len(str(raised.value)) < 2000


async def test_a_redirect_is_not_followed() -> None:
    with pytest.raises(RewardServerError, match="answered 307"):
        await ask((307, {"Location": "http://127.0.0.1:1/v1/chat/completions"}, ""))


async def test_an_endless_body_is_not_read_to_its_end() -> None:
    with pytest.raises(RewardServerError, match=f"more than {MAX_BODY_BYTES} bytes"):
        await ask((200, {}, "x" * (MAX_BODY_BYTES + 1)))


@pytest.mark.parametrize("options", [{"stream": True}, {"stop": {1, 2}}, {"temperature": float("nan")}])
async def test_arguments_that_can_not_work_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="chat_complete"):
        await ask(completion(), **options)


async def test_a_service_elsewhere_must_be_told_the_model() -> None:
    with pytest.raises(ConfigError, match=r"must be told which model to ask: pass model="):
        await chat_complete(QUESTION, base_url="http://127.0.0.1:1", api_key_env=None)


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"messages": QUESTION, "chat_complete_request": {"messages": QUESTION}},
        {"chat_complete_request": {"temperature": 0.0}},
        {"messages": QUESTION, "reward_router_address": "127.0.0.1:2"},
        {"messages": QUESTION, "base_url": "http://127.0.0.1:2"},
    ],
)
async def test_arguments_that_contradict_each_other_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        await chat_complete(router_address="127.0.0.1:1", **arguments)


# -- 429 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers", [{"Retry-After": "20"}, {"Retry-After": format_datetime(datetime.now(UTC) + timedelta(seconds=3620))}]
)
async def test_a_429_says_when_to_come_back_to_the_caller_and_to_the_limit(headers: dict[str, str]) -> None:
    booked = Booked()
    with under(booked), pytest.raises(TooManyRequests, match="answered 429: slow down") as raised:
        await ask((429, headers, "slow down"))
    assert raised.value.retry_after_s is not None
    assert raised.value.retry_after_s >= 20.0
    assert booked.waits == [raised.value.retry_after_s]
    assert booked.tokens == []


async def test_a_429_under_a_limit_is_not_asked_again_here() -> None:
    async with service((429, {"Retry-After": "0"}, ""), completion()) as judge:
        with under(Booked()), pytest.raises(TooManyRequests):
            await chat_complete(QUESTION, router_address=judge.address)
        assert len(judge.asked) == 1


async def test_a_429_may_say_nothing_more() -> None:
    booked = Booked()
    with under(booked), pytest.raises(TooManyRequests) as raised:
        await ask((429, {}, ""))
    assert raised.value.retry_after_s is None
    assert booked.waits == [None]


@pytest.mark.parametrize(("usage", "tokens"), [({"total_tokens": 30}, 30), ({"prompt_tokens": 9, "completion_tokens": 3}, 12)])
async def test_usage_is_reported_to_the_limit(usage: dict[str, int], tokens: int) -> None:
    booked = Booked()
    with under(booked):
        await ask(completion(usage=usage))
    assert booked.tokens == [tokens]


# -- keys ------------------------------------------------------------------------------------------------------------


async def test_the_key_goes_to_the_service(key: str) -> None:
    async with service(completion()) as judge:
        await chat_complete(QUESTION, model="judge", base_url=judge.base_url, api_key_env="JUDGE_KEY")
        assert judge.headers[0]["Authorization"] == f"Bearer {key}"


ECHO = f'{{"error": "no such key: {KEY}", "got": "Bearer {KEY}"}}'
ECHOES: list[Answer] = [(status, {}, ECHO) for status in (200, 302, 401, 429, 500)]


@pytest.mark.parametrize("answer", [*ECHOES, HANG, HANG_UP], ids=str)
async def test_the_key_is_in_no_error_and_no_log(answer: Answer, key: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with service(answer) as judge:
        with pytest.raises(RewardServerError) as raised:
            await chat_complete(QUESTION, model="judge", base_url=judge.base_url, api_key_env="JUDGE_KEY", timeout_s=0.3)
    error = raised.value
    for text in (str(error), repr(error), str(error.__dict__), repr(error.__cause__), caplog.text):
        assert key not in text
    assert answer[0] not in (401, 429) or "no such key: ***" in str(error)


async def test_the_key_is_in_no_reply(key: str) -> None:
    async with service(completion(f"the key is {KEY}")) as judge:
        reply = await chat_complete(QUESTION, model="judge", base_url=judge.base_url, api_key_env="JUDGE_KEY")
    assert reply.text == "the key is ***"


async def test_a_placeholder_for_a_key_may_be_a_word_of_the_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "EMPTY")
    async with service(completion("EMPTY")) as judge:
        reply = await chat_complete(QUESTION, model="judge", base_url=judge.base_url, api_key_env="JUDGE_KEY")
    assert reply.text == "EMPTY"


# -- connections -----------------------------------------------------------------------------------------------------


async def test_requests_of_one_loop_share_connections() -> None:
    async with service(completion()) as judge:
        for _ in range(5):
            await chat_complete(QUESTION, model="judge", base_url=judge.base_url, api_key_env=None)
        assert len(judge.connections) == 1


async def test_many_requests_run_side_by_side() -> None:
    async with service(completion()) as judge:
        asking = (chat_complete(QUESTION, model="judge", base_url=judge.base_url, api_key_env=None) for _ in range(200))
        assert {reply.text for reply in await asyncio.gather(*asking)} == {"yes"}


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_one_loop_after_the_other_works_and_leaves_nothing_open(run: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):
            assert run(ask(completion())).text == "yes"
        gc.collect()


async def test_being_cancelled_is_no_error_of_the_service() -> None:
    async with service(HANG) as judge:
        asking = asyncio.create_task(chat_complete(QUESTION, model="judge", base_url=judge.base_url, api_key_env=None))
        await judge.was_asked.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


def test_importing_it_loads_nothing_heavy() -> None:
    program = "import sys, reward_loop.scoring.chat, reward_loop.limits.client; print(*sys.modules)"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert {"torch", "ray", "vllm", "transformers", "pyarrow"}.isdisjoint(name.split(".")[0] for name in done.stdout.split())

"""The client of reward servers: what it sends, what it makes of each answer, and what it never takes for a score."""

from __future__ import annotations

import asyncio
import json
import pickle
import socket
from typing import Any

import pytest

from reward_loop.errors import (
    ConfigError,
    DataError,
    RequestRejected,
    RewardServerError,
    ServerAsleep,
    ServerUnavailable,
    TooManyRequests,
)
from reward_loop.scoring.reward_client import PoolingType, RewardModelClient, ScoringRequest, ScoringResult
from reward_loop.scoring.transport import MAX_BODY_BYTES
from reward_loop.scoring.vllm_client import VLLMRewardClient
from tests.scoring.service import HANG, HANG_UP, HANG_UP_MIDWAY, Answer, Reaction, Service, lengths, scores, service


def client(server: Service, **options: Any) -> VLLMRewardClient:
    defaults: dict[str, Any] = {"address": server.address, "timeout_s": 20.0}
    return VLLMRewardClient(**(defaults | options))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


async def score(*answers: Answer | Reaction, inputs: Any = ("a", "bb"), **options: Any) -> list[Any]:
    async with service(*answers) as server:
        response, _ = await client(server, **options).score(ScoringRequest("rm", inputs))
        return list(response.scores)


# -- what is sent ----------------------------------------------------------------------------------------------------


async def test_a_request_says_what_was_asked_and_no_more() -> None:
    async with service(scores(1.0, 2.0)) as server:
        await client(server).score(ScoringRequest("rm", ["a", "bb"]))
        await client(server).score(ScoringRequest(None, [[1, 2], (3,)], "step", n_labels=2, normalize=False))
        assert server.asked == [
            {"model": "rm", "input": ["a", "bb"], "normalize": True},
            {"input": [[1, 2], [3]], "pooling_type": "STEP", "n_labels": 2, "normalize": False},
        ]


async def test_the_second_value_says_how_it_was_carried() -> None:
    async with service(scores(0.5)) as server:
        response, info = await client(server).score(ScoringRequest("rm", ["a"]))
    assert response.metadata == {"model": "rm", "usage": {"prompt_tokens": 3, "total_tokens": 3}, "version": None}
    assert response.results == [ScoringResult(0, 0.5)]
    assert info["request"] == {"model": "rm", "input": ["a"], "normalize": True}
    assert info["raw_response"]["data"] == [{"index": 0, "score": 0.5}]
    assert info["attempts"] == 1


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/"])
async def test_a_base_url_may_be_that_of_the_openai_api(path: str) -> None:
    async with service(scores(1.0)) as server:
        of_base = VLLMRewardClient(base_url=server.base_url + path)
        assert await of_base.score_batch(["a"]) == [1.0]
        host, port = server.address.split(":")
        assert await VLLMRewardClient(host=host, port=int(port)).score_batch(["a"]) == [1.0]


async def test_headers_and_the_key_go_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RM_KEY", "sk-reward-0123456789")
    async with service((401, {}, "no such key: sk-reward-0123456789")) as server:
        with pytest.raises(RequestRejected, match=r"no such key: \*\*\*") as raised:
            await client(server, api_key_env="RM_KEY", headers={"X-Session-Id": "7"}).score_one("a")
        assert server.headers[0]["Authorization"] == "Bearer sk-reward-0123456789"
        assert server.headers[0]["X-Session-Id"] == "7"
    assert "0123456789" not in repr(raised.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"inputs": []},
        {"inputs": "a"},
        {"inputs": ["a", [1]]},
        {"inputs": ["a"], "return_hidden_states": True},
    ],
)
def test_a_request_that_can_not_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ScoringRequest("rm", **wrong)


def test_pooling_types_have_names_in_any_case() -> None:
    assert [PoolingType(name) for name in ("last", "MEAN", "Cls", "step", "all")] == [*PoolingType]
    with pytest.raises(ConfigError, match=r"pooling_type='max' is none of LAST, MEAN, CLS, STEP, ALL"):
        VLLMRewardClient(pooling_type="max")


@pytest.mark.parametrize("address", ["", "user:pw@host:1", "host:99999"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ConfigError):
        VLLMRewardClient(address=address)


def test_an_ipv6_host_is_bracketed() -> None:
    assert "http://[::1]:8001" in str(vars(VLLMRewardClient(host="::1")))


def test_it_is_a_reward_model_client() -> None:
    typed: RewardModelClient = VLLMRewardClient()
    assert typed


# -- what is a score -------------------------------------------------------------------------------------------------


async def test_scores_come_in_the_order_of_the_inputs() -> None:
    body = {"data": [{"index": 1, "score": 2.0}, {"index": 0, "score": 1.0}]}
    assert await score((200, {}, json.dumps(body))) == [1.0, 2.0]


async def test_a_score_may_be_a_vector_or_one_for_each_step() -> None:
    assert await score(scores([0.5, 1], [[0.1, 0.2], [0.3, 0.4]])) == [[0.5, 1.0], [[0.1, 0.2], [0.3, 0.4]]]


NO_SCORES = [
    scores(1.0),
    scores(1.0, 2.0, 3.0),
    scores(float("nan"), 1.0),
    scores(1.0, float("-inf")),
    scores(1.0, [0.0, float("nan")]),
    scores(1.0, None),
    scores(1.0, "0.5"),
    scores(1.0, True),
    (200, {}, '{"data": [{"index": 0, "score": 1.0}, {"index": 0, "score": 1.0}]}'),
    (200, {}, '{"data": [{"index": 0, "score": 1.0}, {"index": 2, "score": 1.0}]}'),
    (200, {}, '{"data": [{"score": 1.0}, {"score": 1.0}]}'),
    (200, {}, '{"data": [{"index": 0, "sco'),
    (200, {}, "{}"),
    (200, {}, ""),
    (200, {}, "[" * 5000),
    (204, {}, ""),
]


@pytest.mark.parametrize("answer", NO_SCORES, ids=range(len(NO_SCORES)))
async def test_what_is_no_score_is_an_error_of_the_server_and_not_asked_again(answer: Answer) -> None:
    async with service(answer) as server:
        with pytest.raises(RewardServerError) as raised:
            await client(server).score(ScoringRequest("rm", ["a", "bb"]))
        assert len(server.asked) == 1
    assert server.base_url in str(raised.value)
    assert len(str(raised.value)) < 2000
    assert not isinstance(raised.value, RequestRejected | ServerUnavailable)


async def test_an_endless_reply_is_not_read_to_its_end() -> None:
    with pytest.raises(RewardServerError, match=f"more than {MAX_BODY_BYTES} bytes"):
        await score((200, {}, "x" * (MAX_BODY_BYTES + 1)))


# -- what is tried again ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure", [HANG_UP, HANG_UP_MIDWAY, (503, {}, "busy"), (429, {"Retry-After": "0"}, ""), (502, {}, "")], ids=str
)
async def test_what_may_pass_is_tried_again(failure: Answer) -> None:
    async with service(failure, failure, lengths) as server:
        response, info = await client(server).score(ScoringRequest("rm", ["a", "bb"]))
    assert (response.scores, info["attempts"]) == ([1.0, 2.0], 3)


async def test_a_server_that_comes_back_is_found_again() -> None:
    async with service(lengths) as server:
        port = int(server.address.rpartition(":")[2])
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(VLLMRewardClient(port=port, timeout_s=30.0).score_one("abc"))
        await asyncio.sleep(0)
        async with service(lengths, port=port):
            assert (await asking).score == 3.0


@pytest.mark.parametrize("failure", [(400, {}, "bad"), (404, {}, "which model?"), (500, {}, "oh"), (504, {}, "late")], ids=str)
async def test_what_was_decided_is_not_tried_again(failure: Answer) -> None:
    async with service(failure, lengths) as server:
        with pytest.raises(RewardServerError, match=f"answered {failure[0]}: {failure[2]}"):
            await client(server).score(ScoringRequest("rm", ["a"]))
        assert len(server.asked) == 1


async def test_a_request_that_may_bring_servers_down_goes_to_three_of_them() -> None:
    async with service(HANG_UP) as server:
        with pytest.raises(ServerUnavailable, match="can't be reached in 3 attempts: ServerDisconnectedError"):
            await client(server).score(ScoringRequest("rm", ["a"]))
        assert len(server.asked) == 3


async def test_one_deadline_holds_for_all_attempts() -> None:
    async with service((503, {}, "starting")) as server:
        with pytest.raises(ServerUnavailable, match=r"answered 503 to the last of \d+ attempts: starting"):
            await client(server, timeout_s=0.7).score_one("a")
        assert len(server.asked) > 1


async def test_a_server_that_hangs_is_unavailable_after_the_timeout() -> None:
    with pytest.raises(ServerUnavailable, match=r"/score did not answer within 0\.2 s \(timeout_s\)"):
        await score(HANG, timeout_s=0.2)


async def test_the_last_failure_is_told_when_the_time_is_over() -> None:
    with pytest.raises(ServerUnavailable, match=r"did not answer within 0\.7 s .*; before that: http.* answered 503: starting"):
        await score((503, {}, "starting"), HANG, timeout_s=0.7)


async def test_a_wait_that_ends_after_the_deadline_is_not_begun() -> None:
    with pytest.raises(TooManyRequests, match="answered 429: full") as raised:
        await score((429, {"Retry-After": "300"}, "full"))
    assert raised.value.retry_after_s == 300.0


# -- what the router says --------------------------------------------------------------------------------------------


def routed(status: int, kind: str, message: str) -> Answer:
    return status, {"X-Reward-Router": kind}, json.dumps({"error": {"type": kind, "message": message, "code": status}})


async def test_sleeping_servers_are_not_asked_again() -> None:
    itself: Answer = 503, {}, json.dumps({"error": {"type": "asleep", "message": "the server sleeps", "code": 503}})
    for answer in (routed(503, "asleep", "all 2 replicas of rm sleep"), itself):
        async with service(answer) as server:
            with pytest.raises(ServerAsleep, match=r"sleep.*hold a lease of the RewardModelManager"):
                await client(server).score_one("a")
            assert len(server.asked) == 1


@pytest.mark.parametrize(("status", "kind"), [(503, "no_replica"), (502, "upstream_failed"), (504, "timeout")])
async def test_the_router_says_itself_what_is_wrong_with_the_servers(status: int, kind: str) -> None:
    with pytest.raises(ServerUnavailable, match=rf"answered {status}.*: http://h:1 refused the connection \({kind}\)$"):
        await score(routed(status, kind, "http://h:1 refused the connection"), timeout_s=1.0)


async def test_a_model_that_the_router_does_not_know_is_a_rejection() -> None:
    with pytest.raises(RequestRejected, match="it has a, b") as raised:
        await score(routed(404, "unknown_model", "no model rm; it has a, b"))
    assert raised.value.status == 404


# -- lists -----------------------------------------------------------------------------------------------------------


async def test_a_long_list_travels_in_bounded_requests_side_by_side_and_keeps_its_order() -> None:
    async with service(lengths) as server:
        texts = ["x" * (index % 17) for index in range(1000)]
        assert await client(server, max_batch=30, max_in_flight=3).score_batch(texts) == [float(len(text)) for text in texts]
        assert sorted(len(asked["input"]) for asked in server.asked) == [10, *[30] * 33]
        assert server.most_in_flight <= 3


async def test_an_empty_list_has_no_scores_and_no_request() -> None:
    async with service(lengths) as server:
        assert await client(server).score_batch([]) == []
        assert server.asked == []


async def test_a_bad_input_of_a_list_is_named() -> None:
    def picky(body: dict[str, Any]) -> Answer:
        return (400, {}, "too long") if "bad" in body["input"] else lengths(body)

    async with service(picky) as server:
        with pytest.raises(RequestRejected, match=r"^sample inputs\[5\]: .*too long"):
            await client(server, max_batch=4).score_batch(["ok"] * 5 + ["bad"] + ["ok"] * 4)


async def test_a_vector_is_no_number() -> None:
    async with service(scores([0.1, 0.9])) as server:
        with pytest.raises(RewardServerError, match=r"2 values for inputs\[0\]"):
            await client(server).score_batch(["a"])


def test_lists_can_be_scored_without_an_event_loop() -> None:
    async def main() -> tuple[list[float], list[float]]:
        async with service(lengths) as server:
            inside = await asyncio.to_thread(client(server).score_batch_sync, ["a", "bb"])
            return inside, await client(server).score_batch(["a", "bb"])

    assert asyncio.run(main()) == ([1.0, 2.0], [1.0, 2.0])


async def test_lists_can_be_scored_without_awaiting_in_a_running_loop() -> None:
    with pytest.raises(ServerUnavailable):
        VLLMRewardClient(port=1, timeout_s=0.3).score_batch_sync(["a"])


# -- single samples --------------------------------------------------------------------------------------------------


async def test_texts_and_token_ids_travel_apart() -> None:
    async with service(lengths) as server:
        one = client(server)
        inputs: list[Any] = ["a", [1, 2], "bbb", (1, 2, 3, 4)]
        results = await asyncio.gather(*map(one.score_one, inputs))
        assert [result.score for result in results] == [1.0, 2.0, 3.0, 4.0]
        assert sorted(len(asked["input"]) for asked in server.asked) == [2, 2]


async def test_probabilities_and_logits_travel_apart() -> None:
    async with service(lengths) as server:
        one = client(server)
        await asyncio.gather(one.score_one("a"), one.score_one("b", normalize=True))
        assert sorted(asked["normalize"] for asked in server.asked) == [False, True]


@pytest.mark.parametrize("wrong", [[1, 2.5], [None], 5, ["a"]])
async def test_an_input_that_can_not_be_sent_is_refused_before_it_takes_others_along(wrong: Any) -> None:
    async with service(lengths) as server:
        one = client(server)
        good, bad = await asyncio.gather(one.score_one([1, 2]), one.score_one(wrong), return_exceptions=True)
    assert isinstance(good, ScoringResult)
    assert isinstance(bad, DataError)


async def test_inputs_that_the_server_names_get_its_words_and_the_others_their_scores() -> None:
    def picky(body: dict[str, Any]) -> Answer:
        bad = [{"index": at, "message": "is empty"} for at, each in enumerate(body["input"]) if not each]
        if not bad:
            return lengths(body)
        return 400, {}, json.dumps({"error": {"message": f"{len(bad)} bad inputs", "index": bad[0]["index"], "inputs": bad}})

    async with service(picky) as server:
        one = client(server)
        results = await asyncio.gather(*map(one.score_one, ["a", "", "ccc", ""]), return_exceptions=True)
        assert len(server.asked) == 2
    assert [results[0], results[2]] == [ScoringResult(0, 1.0), ScoringResult(0, 3.0)]
    for bad in (results[1], results[3]):
        assert isinstance(bad, RequestRejected)
        assert str(bad).endswith("/score answered 400: the input is empty")


async def test_an_input_whose_score_is_no_number_fails_alone_if_the_server_names_it() -> None:
    def overflows(body: dict[str, Any]) -> Answer:
        if "huge" not in body["input"]:
            return lengths(body)
        return 500, {}, json.dumps({"error": {"message": "the score is NaN", "index": body["input"].index("huge")}})

    async with service(overflows) as server:
        one = client(server)
        good, bad = await asyncio.gather(one.score_one("a"), one.score_one("huge"), return_exceptions=True)
    assert good == ScoringResult(0, 1.0)
    assert isinstance(bad, ServerUnavailable)
    assert str(bad).endswith("answered 500: the score is NaN")


async def test_a_closed_client_takes_nothing_and_has_answered_everything() -> None:
    async with service(lengths) as server:
        async with client(server) as one:
            asked = [asyncio.create_task(one.score_one("x" * n)) for n in range(1, 6)]
            await server.was_asked.wait()
        assert [task.result().score for task in asked] == [1.0, 2.0, 3.0, 4.0, 5.0]
        with pytest.raises(RewardServerError, match="was closed"):
            await one.score_one("a")


def test_one_client_serves_one_event_loop_after_the_other() -> None:
    port = free_port()
    one = VLLMRewardClient(port=port)

    async def main() -> ScoringResult:
        async with service(lengths, port=port):
            return await one.score_one("abc")

    assert [asyncio.run(main()) for _ in range(3)] == [ScoringResult(0, 3.0)] * 3


async def test_the_version_of_the_weights_is_asked_for() -> None:
    async with service((200, {}, '{"version": 7}')) as server:
        assert await client(server).get_model_version() == 7
    runtime = {"version": 0, "device": "cpu", "host": "here", "gpus": [], "sync": True, "busy": None}
    async with service((200, {}, json.dumps(runtime))) as server:
        assert await client(server).get_model_version() == 0
    for body in ('{"version": "x"}', '{"version": -1}', "{}", "[]"):
        async with service((200, {}, body)) as server:
            with pytest.raises(RewardServerError, match="sent no version"):
                await client(server).get_model_version()


async def test_errors_of_a_batch_pickle() -> None:
    async with service((400, {}, "no")) as server:
        with pytest.raises(RequestRejected) as raised:
            await client(server).score_one("a")
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)

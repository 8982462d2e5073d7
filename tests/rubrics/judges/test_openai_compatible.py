"""Asking a model behind an OpenAI-compatible service: what goes out, what it costs, and how it fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from reward_loop.deadline import within
from reward_loop.errors import ConfigError, JudgeError
from reward_loop.rubrics.judges.openai_compatible import OpenAICompatible
from reward_loop.rubrics.judges.usage import JudgeUsage, Prices, usage_recorded
from tests.rubrics.judges.judge_model import USAGE
from tests.rubrics.judges.processes import free_port, until
from tests.scoring.service import HANG, HANG_UP, Answer, completion, service

FORM = {"type": "object"}
PRICES = Prices(prompt=1e4, completion=1e5)


async def test_a_prompt_goes_out_with_the_model_and_the_sampling() -> None:
    async with service(completion("fine")) as model:
        client = OpenAICompatible(model.base_url, "m", sampling={"temperature": 0.0, "max_tokens": 5})
        assert await client.complete("How is it?", max_tokens=9) == "fine"
        messages = [{"role": "user", "content": "How is it?"}]
        assert model.asked == [{"messages": messages, "temperature": 0.0, "max_tokens": 9, "model": "m"}]


async def test_the_router_need_not_be_told_the_model() -> None:
    async with service(completion("fine")) as router:
        assert await OpenAICompatible(router_address=router.address).complete("?") == "fine"
        assert "model" not in router.asked[0]


@pytest.mark.parametrize(
    ("enforce", "sent"),
    [
        ("structured_outputs", {"structured_outputs": {"json": FORM}}),
        ("response_format", {"response_format": {"type": "json_schema"}}),
        ("none", {}),
    ],
)
async def test_the_form_is_told_in_the_services_own_way(enforce: Any, sent: dict[str, Any]) -> None:
    async with service(completion("{}")) as model:
        await OpenAICompatible(model.base_url, "m", enforce=enforce).chat([], form=FORM)
        asked = {key: value for key, value in model.asked[0].items() if key not in ("messages", "model")}
    assert asked.keys() == sent.keys()
    if enforce == "response_format":
        assert asked["response_format"]["json_schema"] == {"name": "verdict", "strict": True, "schema": FORM}


async def test_each_reply_is_recorded_with_its_cost_also_when_it_is_of_no_use() -> None:
    async with service(completion(None, USAGE), completion("C", USAGE)) as model:
        client = OpenAICompatible(model.base_url, "m", prices=PRICES, name="style")
        with usage_recorded() as ledger:
            with pytest.raises(JudgeError, match="wrote no text"):
                await client.complete("?")
            with pytest.raises(JudgeError, match=r"wrote 'C', but it is none of \['A', 'B'\]"):
                await client.choose([], ["A", "B"])
        assert ledger.by_judge == {"style": JudgeUsage(2, 200, 20, 4.0)}


async def test_a_service_that_counts_no_tokens_costs_calls() -> None:
    async with service(completion("fine")) as model:
        with usage_recorded() as ledger:
            await OpenAICompatible(model.base_url, "m", prices=PRICES).complete("?")
        assert ledger.total == JudgeUsage(calls=1)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((200, {}, "<html>"), "sent no chat completion"),
        ((200, {}, '{"choices": [{"message"'), "sent no chat completion"),
        ((429, {"Retry-After": "60"}, "slow down"), "answered 429"),
        ((400, {}, "too long"), "answered 400: too long"),
        ((500, {}, "oops"), "answered 500"),
        (HANG_UP, "can't be reached"),
        (HANG, "did not answer within 0.5 s"),
    ],
)
async def test_every_failure_of_the_service_is_an_error_of_the_judge(answer: Answer, why: str) -> None:
    async with service(answer) as model:
        client = OpenAICompatible(model.base_url, "m", timeout_s=0.5, name="style")
        with usage_recorded() as ledger, pytest.raises(JudgeError, match=f"the judge style failed: .*{why}"):
            await client.complete("?")
        assert ledger.total == JudgeUsage()


async def test_no_more_requests_are_under_way_than_allowed() -> None:
    async with service(completion("fine")) as model:
        client = OpenAICompatible(model.base_url, "m", max_concurrency=3)
        model.open.clear()
        async with asyncio.TaskGroup() as calls:
            for _ in range(12):
                calls.create_task(client.complete("?"))
            await until(lambda: model.in_flight == 3)
            model.open.set()
        assert (model.most_in_flight, len(model.asked)) == (3, 12)


async def test_the_wait_for_a_turn_does_not_count_towards_a_samples_deadline() -> None:
    async with service(completion("fine")) as model:
        client = OpenAICompatible(model.base_url, "m", max_concurrency=1)
        model.open.clear()
        async with asyncio.TaskGroup() as calls:
            first = calls.create_task(client.complete("first"))
            await model.was_asked.wait()
            second = calls.create_task(within(client.complete("second"), timeout_s=0.2))
            await asyncio.sleep(0.3)  # longer than the deadline
            model.open.set()
        assert (first.result(), second.result()) == ("fine", "fine")


def test_one_client_works_in_several_event_loops() -> None:
    async def ask(client: OpenAICompatible, base: str) -> None:
        async with service(completion("fine"), port=int(base.rpartition(":")[2])), asyncio.TaskGroup() as calls:
            for _ in range(4):
                calls.create_task(client.complete("?"))

    base = f"http://127.0.0.1:{free_port()}"
    client = OpenAICompatible(base, "m", max_concurrency=1)
    asyncio.run(ask(client, base))
    asyncio.run(ask(client, base))


@pytest.mark.parametrize("where", [{}, {"base_url": "http://x", "model": "m", "router_address": "x:1"}, {"base_url": "http://x"}])
def test_where_the_model_is_must_be_clear(where: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"needs one of base_url|which model"):
        OpenAICompatible(**where)

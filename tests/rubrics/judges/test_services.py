"""Judge services by name: what is checked at the start, limits, caches and costs, with models and functions of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mcp.server import MCPServer

from reward_loop.errors import ConfigError, JudgeError, Unscorable
from reward_loop.rubrics.judges.registered import register_judge, registered_judges
from reward_loop.rubrics.judges.services import JudgeServices
from reward_loop.rubrics.judges.usage import JudgeUsage, usage_recorded
from tests.rubrics.judges.judge_model import USAGE, obeying
from tests.rubrics.judges.mcp_server import server as mcp_object
from tests.rubrics.judges.processes import until
from tests.scoring.service import HANG, completion, service


def inproc(function: Any, **settings: Any) -> JudgeServices:
    """One service, called judge."""
    return JudgeServices({"judge": {"type": "inproc", **settings}}, functions={"judge": function})


async def test_a_function_of_this_process_is_a_judge() -> None:
    async def judge(text: str, strict: bool = False) -> dict[str, Any]:
        return {"score": len(text) / 10, "strict": strict}

    async with inproc(judge, arguments={"strict": True}) as services:
        assert await services.call_tool("judge", text="hello") == {"score": 0.5, "strict": True}
        assert [tool.name for tool in services.tools()["judge"]] == ["judge"]


async def test_a_synchronous_function_runs_in_a_thread() -> None:
    def judge(text: str) -> str:
        return f'{{"score": 1, "on": "{threading.current_thread().name}"}}'

    async with inproc(judge) as services:
        answer = await services.call_tool("judge", text="x")
    assert answer["on"].startswith("judge judge")


@pytest.mark.parametrize("form", [0.5, "0.5", '{"score": 0.5}', {"result": 0.5}, {"score": 0.5}])
async def test_functions_answer_in_any_form_that_tools_may(form: object) -> None:
    async with inproc(lambda: form) as services:
        assert await services.call_tool("judge") == {"score": 0.5}


def _raise(error: Exception) -> Callable[[], None]:
    def judge() -> None:
        raise error

    return judge


@pytest.mark.parametrize(
    ("function", "kind", "problem"),
    [
        (_raise(ZeroDivisionError("by zero")), JudgeError, "judge raised ZeroDivisionError: by zero"),
        (_raise(TimeoutError("its own")), JudgeError, "judge: TimeoutError: its own"),
        (_raise(Unscorable("no reference")), Unscorable, "no reference"),
        (lambda: None, JudgeError, "gave no score"),
        (lambda: "good", JudgeError, "gave no score"),
        (lambda: float("nan"), JudgeError, "can't be used"),
    ],
)
async def test_a_function_that_fails_is_an_error_and_its_service_goes_on(
    function: Callable[[], Any], kind: type[Exception], problem: str
) -> None:
    async with inproc(function) as services:
        for _ in range(2):
            with pytest.raises(kind, match=problem):
                await services.call_tool("judge")


async def test_a_function_that_hangs_is_an_error_in_time() -> None:
    release = threading.Event()
    async with inproc(lambda: release.wait(), timeout_s=0.05, max_concurrency=1) as services:
        for _ in range(2):  # the thread that hangs does not keep the next call from its turn
            with pytest.raises(JudgeError, match=r"did not answer within 0\.05 s"):
                await services.call_tool("judge")
    release.set()


async def test_a_server_object_of_the_sdk_is_a_judge_too() -> None:
    settings = {"judge": {"type": "inproc"}, "bare": {"type": "inproc", "function": "judge", "tool": "bare"}}
    async with JudgeServices(settings, functions={"judge": mcp_object}) as services:
        assert await services.call_tool("judge", text="a 0.5") == {"score": 0.5, "reasoning": "a 0.5"}
        assert await services.call_tool("bare", text="x") == {"score": 0.25, "text": "x"}


async def test_a_function_is_registered_under_a_name() -> None:
    name = "test_services.registered"
    if name not in registered_judges():
        register_judge(name)(lambda: 0.75)
    with pytest.raises(ConfigError, match=f"there is a judge {name} already"):
        register_judge(name)(lambda: 1.0)
    async with JudgeServices({"s": {"type": "inproc", "function": name}}) as services:
        assert await services.call_tool("s") == {"score": 0.75}
    with pytest.raises(ConfigError, match="there is no judge function nobody"):
        JudgeServices({"nobody": {"type": "inproc"}})


async def test_a_service_or_argument_that_is_not_there_is_named_with_those_that_are() -> None:
    async with inproc(lambda text, strict=False: 1.0) as services:
        with pytest.raises(ConfigError, match=r"no judge service jugde; there are \['judge'\]; did you mean judge\?"):
            await services.call_tool("jugde")
        with pytest.raises(ConfigError, match=r"the tool judge does not take \['code'\]; it takes \['strict', 'text'\]"):
            await services.call_tool("judge", text="x", code="x")
        with pytest.raises(ConfigError, match=r"the tool judge needs \['text'\]"):
            await services.call_tool("judge")
        services.require("judge", ["text"])
        with pytest.raises(ConfigError, match="does not take"):
            services.require("judge", ["text", "code"])


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"function": "judge", "tool": "no_such"}, r"there is no tool no_such; there are \['anything', 'bare', "),
        ({"function": "judge", "arguments": {"cod": "x"}, "tool": "bare"}, r"the tool bare does not take \['cod'\]"),
        ({"function": "judge"}, r"there is no tool style; .* set tool to one of them"),
    ],
)
async def test_a_missing_tool_or_argument_is_an_error_at_the_start(settings: dict[str, Any], problem: str) -> None:
    services = JudgeServices({"style": {"type": "inproc", **settings}}, functions={"judge": mcp_object})
    with pytest.raises(ConfigError, match=problem):
        await services.open()
    assert not services.is_open


async def test_the_only_tool_of_a_server_needs_no_name() -> None:
    server = MCPServer("one", log_level="CRITICAL")

    @server.tool()
    def judge_style(code: str) -> float:
        """The only one."""
        return float(code)

    async with JudgeServices({"style": {"type": "inproc", "function": "one"}}, functions={"one": server}) as services:
        assert await services.call_tool("style", code="0.5") == {"score": 0.5}


async def test_services_must_be_open() -> None:
    services = inproc(lambda: 1.0)
    with pytest.raises(JudgeError, match="the services are not open"):
        await services.call_tool("judge")
    async with services:
        with pytest.raises(ConfigError, match="open already"):
            await services.open()
    with pytest.raises(JudgeError, match="the services are not open"):
        await services.call_tool("judge")
    async with services:
        assert await services.call_tool("judge") == {"score": 1.0}


async def test_answers_are_kept_by_their_arguments_and_failures_are_not() -> None:
    calls: list[str] = []

    async def judge(text: str, context: dict[str, int]) -> dict[str, Any]:
        calls.append(text)
        if text == "bad":
            raise ValueError(text)
        return {"score": 1.0, "seen": []}

    async with inproc(judge, cache=2) as services:
        with usage_recorded() as ledger:
            async with asyncio.TaskGroup() as group:
                same = [group.create_task(services.call_tool("judge", text="a", context={"x": 1, "y": 2})) for _ in range(5)]
            same[0].result()["seen"].append("mine")
            assert await services.call_tool("judge", context={"y": 2, "x": 1}, text="a") == {"score": 1.0, "seen": []}
        assert (calls, ledger.total.calls) == (["a"], 1)
        for _ in range(2):
            with pytest.raises(JudgeError):
                await services.call_tool("judge", text="bad", context={})
        assert calls == ["a", "bad", "bad"]
        for text in ("b", "c", "a"):  # two are kept: the first is gone
            await services.call_tool("judge", text=text, context={"x": 1, "y": 2})
        assert calls[3:] == ["b", "c", "a"]
        with pytest.raises(ConfigError, match="arguments that are JSON"):
            await services.call_tool("judge", text="x", context={"x": object()})


async def test_no_more_calls_are_under_way_than_allowed() -> None:
    here, go = [0, 0], asyncio.Event()

    async def judge() -> float:
        here[0] += 1
        here[1] = max(here)
        await go.wait()
        here[0] -= 1
        return 1.0

    async with inproc(judge, max_concurrency=3) as services, asyncio.TaskGroup() as calls:
        for _ in range(10):
            calls.create_task(services.call_tool("judge"))
        await until(lambda: here[0] == 3)
        go.set()
    assert here == [0, 3]


def openai(base_url: str, **settings: Any) -> JudgeServices:
    return JudgeServices({"style": {"type": "openai_llm", "endpoint": base_url, "model": "m", **settings}})


async def test_a_prompt_of_ours_makes_a_tool_of_a_model() -> None:
    prices = {"prompt": 1e4, "completion": 1e5}
    async with (
        service(obeying(lambda prompt: {"reasoning": prompt, "score": 0.5})) as model,
        openai(model.base_url, prompt="Rate {code} by {rules.first}", system="Be brief.", prices=prices) as services,
    ):
        [tool] = services.tools()["style"]
        assert (tool.name, tool.takes) == ("style", frozenset({"code", "rules"}))
        with usage_recorded() as ledger:
            answer = await services.call_tool("style", code="{x}", rules={"first": "PEP 8"})
        assert answer == {"score": 0.5, "reasoning": "Rate {x} by PEP 8"}
        assert [message["content"] for message in model.asked[0]["messages"]] == ["Be brief.", "Rate {x} by PEP 8"]
        assert ledger.by_judge == {"style": JudgeUsage(1, 100, 10, 2.0)}


async def test_without_a_prompt_the_judge_is_shown_every_argument() -> None:
    async with service(obeying(lambda _: {"reasoning": "", "score": 1})) as model, openai(model.base_url) as services:
        await services.call_tool("style", text="{rubric}", rubric="Neutral tone", context=[{"role": "user"}])
        shown = model.asked[0]["messages"][0]["content"]
    assert 'text:\n{rubric}\n\nrubric:\nNeutral tone\n\ncontext:\n[{"role": "user"}]' in shown
    assert shown.endswith('{"reasoning": "why", "score": a number from 0 to 1}')


async def test_a_service_model_answers_with_a_text() -> None:
    async with service(completion("Hello, I lost my parcel.")) as model, openai(model.base_url, answer="text") as services:
        assert await services.call_tool("style", persona="angry", conversation=[]) == {"text": "Hello, I lost my parcel."}
        assert "structured_outputs" not in model.asked[0]


@pytest.mark.parametrize("text", ["", "fine", '{"reasoning": "x', '{"score": 2}', '{"score": "high"}', "0.2 or 0.8"])
async def test_a_model_that_gives_no_score_is_an_error_that_was_paid_for(text: str) -> None:
    async with service(completion(text, USAGE)) as model, openai(model.base_url) as services:
        with usage_recorded() as ledger, pytest.raises(JudgeError, match="it gives no score from 0 to 1"):
            await services.call_tool("style", text="x")
        assert ledger.total.calls == 1


async def test_a_model_that_does_not_answer_in_time_is_an_error() -> None:
    async with service(HANG) as model, openai(model.base_url, timeout_s=0.1) as services:
        with pytest.raises(JudgeError, match=r"did not answer within 0\.1 s"):
            await services.call_tool("style", text="x")


async def test_a_model_without_an_endpoint_is_that_behind_the_router() -> None:
    settings = {"style": {"type": "openai_llm"}}
    with pytest.raises(ConfigError, match="style has no endpoint"):
        JudgeServices(settings)
    async with (
        service(obeying(lambda _: {"reasoning": "", "score": 1})) as router,
        JudgeServices(settings, router_address=router.address) as services,
    ):
        assert (await services.call_tool("style", text="x"))["score"] == 1.0


async def test_services_may_be_called_from_another_event_loop(tmp_path: Path) -> None:
    home = asyncio.get_running_loop()

    async def judge() -> dict[str, Any]:
        return {"score": 1.0, "home": asyncio.get_running_loop() is home}

    async with inproc(judge) as services:
        with usage_recorded() as ledger:
            answer = await asyncio.to_thread(lambda: asyncio.run(services.call_tool("judge")))
        assert answer == {"score": 1.0, "home": True}
        assert ledger.total.calls == 1

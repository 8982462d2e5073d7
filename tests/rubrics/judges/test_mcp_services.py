"""Judges behind real MCP servers in processes of their own: by HTTP and as children, killed, restarted and cancelled."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reward_loop.errors import ConfigError, JudgeError
from reward_loop.rubrics.judges.services import JudgeServices
from reward_loop.rubrics.judges.usage import JudgeUsage, usage_recorded
from tests.processes import ROOT, wait_until_gone
from tests.rubrics.judges.judge_model import USAGE
from tests.rubrics.judges.processes import STDIO, free_port, judge_server, mcp_server, until
from tests.scoring.service import Answer, completion, service


def http(port: int, **settings: Any) -> JudgeServices:
    """Every tool of the server at a port, under its own name."""
    return JudgeServices({"*": {"type": "mcp", "endpoint": f"http://127.0.0.1:{port}", **settings}})


def child(**settings: Any) -> JudgeServices:
    """Every tool of a server that is a child process."""
    return JudgeServices({"*": {"type": "stdio", "command": STDIO, "env": {"PYTHONPATH": str(ROOT)}, **settings}})


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a server that no test kills."""
    port = free_port()
    with mcp_server(port):
        yield port


@pytest.fixture(params=["http", "stdio"])
def services(request: pytest.FixtureRequest, port: int) -> JudgeServices:
    """The same server by both transports."""
    return http(port) if request.param == "http" else child()


async def test_a_tool_may_answer_in_any_form_and_may_fail(port: int) -> None:
    async with http(port) as services:
        assert await services.call_tool("judge", text="a 0.5") == {"score": 0.5, "reasoning": "a 0.5"}
        assert await services.call_tool("bare", text="x") == {"score": 0.25, "text": "x"}
        assert await services.call_tool("number_text", text="x") == {"score": 0.5}
        assert await services.call_tool("json_text", text="x") == {"score": 0.125}
        with usage_recorded() as ledger:
            for tool, problem in [
                ("untyped", "gave no score"),
                ("fail", "no verdict on x"),
                ("crash", "Error executing tool crash"),
            ]:
                with pytest.raises(JudgeError, match=problem):
                    await services.call_tool(tool, text="x")
        assert ledger.by_judge == {"*": JudgeUsage(calls=3)}
        with pytest.raises(ConfigError, match="there is no tool no_such"):
            await services.call_tool("no_such")
        with pytest.raises(ConfigError, match=r"does not take \['code'\]"):
            await services.call_tool("judge", code="x")
        with pytest.raises(ConfigError, match="can't be sent as JSON"):
            await services.call_tool("judge", text=object())
        assert (await services.call_tool("judge", text="a 1"))["score"] == 1.0


async def test_64_calls_are_under_way_at_once_over_one_session(services: JudgeServices) -> None:
    async with services, asyncio.TaskGroup() as calls:
        tasks = [calls.create_task(services.call_tool("judge_together", text=f"a {n}", group="64", count=64)) for n in range(64)]
    assert [task.result()["score"] for task in tasks] == list(range(64))


async def test_a_call_that_takes_too_long_is_an_error_and_the_session_goes_on(port: int, tmp_path: Path) -> None:
    async with http(port, timeout_s=3.0) as services:
        asked = tmp_path / "asked"
        with pytest.raises(JudgeError, match=r"hang did not answer within 3\.0 s"):
            await services.call_tool("hang", text=str(asked))
        await until(lambda: asked.read_text() == "stopped")
        assert (await services.call_tool("judge", text="a 1"))["score"] == 1.0


async def test_a_call_that_is_cancelled_stops_at_the_server_and_leaves_the_session_usable(
    services: JudgeServices, tmp_path: Path
) -> None:
    async with services:
        before = (await services.call_tool("pid"))["score"]
        asked = tmp_path / "asked"
        task = asyncio.create_task(services.call_tool("hang", text=str(asked)))
        await until(asked.exists)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: asked.read_text() == "stopped")
        assert (await services.call_tool("pid"))["score"] == before


async def test_closing_ends_the_calls_under_way_and_leaves_nothing_behind(services: JudgeServices, tmp_path: Path) -> None:
    tasks = asyncio.all_tasks()
    asked = tmp_path / "asked"
    async with services:
        pid = int((await services.call_tool("pid"))["score"])
        under_way = asyncio.create_task(services.call_tool("hang", text=str(asked)))
        await until(asked.exists)
    with pytest.raises(JudgeError, match="is closed"):
        await under_way
    assert asyncio.all_tasks() == tasks
    if "stdio" in os.environ["PYTEST_CURRENT_TEST"]:
        wait_until_gone([pid])


async def test_a_child_that_dies_is_started_again() -> None:
    async with child(retries=1) as services:
        first = int((await services.call_tool("pid"))["score"])
        os.kill(first, signal.SIGKILL)
        second = int((await services.call_tool("pid"))["score"])
        assert second != first
        with pytest.raises(JudgeError, match="2 connections broke under this call"):
            await services.call_tool("die", text="x")
    wait_until_gone([first, second])


async def test_a_server_that_is_not_there_yet_is_waited_for_and_one_that_went_away_for_good_is_not() -> None:
    port = free_port()
    with pytest.raises(JudgeError, match=r"service \* can't be reached: .*ConnectError"):
        await http(port, connect_timeout_s=0.3).open()
    services = http(port, timeout_s=1.0)
    opening = asyncio.create_task(services.open())
    with mcp_server(port):
        await opening
        assert (await services.call_tool("judge", text="a 1"))["score"] == 1.0
    with pytest.raises(JudgeError, match=r"service \* can't be reached"):
        await services.call_tool("judge", text="a 1")
    await services.close()


async def test_a_program_that_is_not_there_is_an_error_at_the_start() -> None:
    with pytest.raises(ConfigError, match="there is no program no-such-judge"):
        await JudgeServices({"s": {"type": "stdio", "command": "no-such-judge --fast"}}).open()


async def test_something_that_is_no_mcp_server_is_an_error() -> None:
    async with service((200, {"Content-Type": "text/html"}, "<html>")) as web:
        services = JudgeServices({"s": {"type": "mcp", "endpoint": web.base_url, "connect_timeout_s": 1.0}})
        with pytest.raises(JudgeError, match="service s can't be reached"):
            await services.open()


PROMPT = "Give the number in: {text}"


def scored_by_number(body: dict[str, Any]) -> Answer:
    number = body["messages"][-1]["content"].rsplit(maxsplit=1)[-1]
    return completion(f'{{"reasoning": "{number}", "score": {number}}}', USAGE)


async def test_16_of_16_calls_get_their_own_answers_across_a_kill_and_restart_of_the_judge_server(tmp_path: Path) -> None:
    port = free_port()
    config = tmp_path / "services.yaml"
    async with service(scored_by_number) as model:
        config.write_text(
            f"mcp_services: {{judge: {{type: openai_llm, endpoint: '{model.base_url}', model: m, prompt: '{PROMPT}'}}}}"
        )
        model.open.clear()
        remote = {"judge": {"type": "mcp", "endpoint": f"http://127.0.0.1:{port}"}}
        with judge_server(config, port) as (first, _), usage_recorded() as ledger:
            async with JudgeServices(remote) as services, asyncio.TaskGroup() as calls:
                tasks = [calls.create_task(services.call_tool("judge", text=f"a 0.{n:02}")) for n in range(16)]
                await until(lambda: model.in_flight == 16)
                first.kill()
                first.wait()
                await until(lambda: model.in_flight == 0)
                model.open.set()
                with judge_server(config, port):
                    async with asyncio.timeout(60):
                        scores = [(await task)["score"] for task in tasks]
    assert scores == [float(f"0.{n:02}") for n in range(16)]
    assert ledger.by_judge["judge"] == JudgeUsage(16, 1600, 160, 0.0)

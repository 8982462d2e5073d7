"""The client for code that does not await."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from reward_loop.errors import ConfigError, JudgeError, RewardLoopError
from reward_loop.rubrics.judges.mcp_client import MCPClient
from reward_loop.rubrics.judges.usage import usage_recorded
from tests.rubrics.judges.processes import free_port, mcp_server

INPROC = {"judge": {"type": "inproc"}}


def test_the_seeds_call_works_with_the_address_of_one_server() -> None:
    port = free_port()
    with mcp_server(port), MCPClient(f"http://127.0.0.1:{port}") as client:
        assert client.call_tool("judge", text="a 0.5")["score"] == 0.5
        assert "bare" in {tool.name for tool in client.tools()["*"]}
        with pytest.raises(JudgeError, match="no verdict on x"):
            client.call_tool("fail", text="x")


def test_any_thread_may_call_and_what_it_costs_goes_to_the_callers_ledger() -> None:
    with MCPClient(INPROC, functions={"judge": lambda text: len(text) / 10}) as client:
        scores: list[float] = []
        with usage_recorded() as ledger:
            assert client.call_tool("judge", text="hello")["score"] == 0.5
        thread = threading.Thread(target=lambda: scores.append(client.call_tool("judge", text="hi")["score"]))
        thread.start()
        thread.join()
        assert scores == [0.2]
        assert ledger.total.calls == 1


async def test_a_running_loop_may_call_too() -> None:
    with MCPClient(INPROC, functions={"judge": lambda: 1.0}) as client:
        assert client.call_tool("judge") == {"score": 1.0}


def test_its_own_loop_may_not_call_it() -> None:
    clients: list[MCPClient] = []

    async def judge() -> Any:
        return clients[0].call_tool("judge")

    with MCPClient(INPROC, functions={"judge": judge}) as client:
        clients.append(client)
        with pytest.raises(ConfigError, match="can't be called in its own loop"):
            client.call_tool("judge")


def test_a_client_that_can_not_open_or_was_closed_says_so() -> None:
    before = threading.active_count()
    with pytest.raises(JudgeError, match="can't be reached"):
        MCPClient({"s": {"type": "mcp", "endpoint": f"http://127.0.0.1:{free_port()}", "connect_timeout_s": 0.2}})
    client = MCPClient(INPROC, functions={"judge": lambda: 1.0})
    client.close()
    client.close()
    with pytest.raises(RewardLoopError, match="closed"):
        client.call_tool("judge")
    assert threading.active_count() == before

"""Our judge server, in a process of its own, asked by our client and by the SDK's."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client

from reward_loop.errors import JudgeError
from reward_loop.rubrics.judges.services import JudgeServices
from reward_loop.rubrics.judges.usage import JudgeUsage, usage_recorded
from tests.processes import ROOT
from tests.rubrics.judges.judge_model import USAGE, obeying
from tests.rubrics.judges.processes import judge_server
from tests.scoring.service import Service, completion, service

MODULE = "reward_loop.rubrics.judges.server"


def config(path: Path, model: Service) -> Path:
    file = path / "services.yaml"
    openai = {"type": "openai_llm", "endpoint": model.base_url, "model": "m", "prices": {"prompt": 1e4, "completion": 1e5}}
    services = {
        "style_judge": {**openai, "prompt": "Rate {code}", "tool": "judge_style"},
        "user": {**openai, "answer": "text"},
    }
    file.write_text(json.dumps({"mcp_services": services}))  # JSON is YAML
    return file


async def test_it_serves_each_service_as_a_tool_with_structured_answers_and_their_cost(tmp_path: Path) -> None:
    async with service(obeying(lambda _: {"reasoning": "fine", "score": 0.5})) as model:
        with judge_server(config(tmp_path, model)) as (process, line):
            where = json.loads(line)
            assert where["pid"] == process.pid
            async with Client(f"http://127.0.0.1:{where['port']}/mcp") as client:
                tools = {tool.name: tool for tool in (await client.list_tools()).tools}
                assert tools.keys() == {"style_judge", "user"}
                assert tools["style_judge"].input_schema["required"] == ["code"]
                result = await client.call_tool("style_judge", {"code": "x = 1"})
            assert result.structured_content is not None
            assert result.structured_content["score"] == 0.5
            assert result.structured_content["usage"] == {
                "calls": 1,
                "prompt_tokens": 100,
                "completion_tokens": 10,
                "cost": 2.0,
            }
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) in (0, -signal.SIGTERM)


@pytest.mark.parametrize("transport", ["http", "stdio"])
async def test_our_client_records_its_cost_also_when_it_fails(tmp_path: Path, transport: str) -> None:
    async with service(completion("no idea", USAGE)) as model:
        path = config(tmp_path, model)
        if transport == "stdio":
            await _fails(
                {"type": "stdio", "command": [sys.executable, "-m", MODULE, "-c", str(path), "--stdio"], "cwd": str(ROOT)}
            )
        else:
            with judge_server(path) as (_, line):
                await _fails({"type": "mcp", "endpoint": f"http://127.0.0.1:{json.loads(line)['port']}"})


async def _fails(remote: dict[str, Any]) -> None:
    async with JudgeServices({"style_judge": remote}) as services:
        with usage_recorded() as ledger, pytest.raises(JudgeError, match="wrote 'no idea', but it gives no score"):
            await services.call_tool("style_judge", code="x")
        assert ledger.by_judge == {"style_judge": JudgeUsage(1, 100, 10, 2.0)}


def test_it_ends_with_its_standard_input(tmp_path: Path) -> None:
    path = tmp_path / "services.yaml"
    path.write_text("mcp_services: {s: {type: openai_llm, endpoint: 'http://127.0.0.1:1', model: m}}")
    done = subprocess.run(
        [sys.executable, "-m", MODULE, "-c", str(path), "--stdio"], input=b"", cwd=ROOT, timeout=60, check=False
    )
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("text", "problem"),
    [("mcp_services: {s: {type: grpc}}", "mcp_services.s"), ("mcp_services: [", "no valid YAML"), (None, "can't be read")],
)
def test_a_configuration_that_can_not_work_is_said_and_ends_it(tmp_path: Path, text: str | None, problem: str) -> None:
    path = tmp_path / "services.yaml"
    if text is not None:
        path.write_text(text)
    words = [sys.executable, "-m", MODULE, "-c", str(path), "--port", "0"]
    done = subprocess.run(words, cwd=ROOT, timeout=60, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert problem in done.stderr

"""The mapping of services: everything that is wrong in it is said at once, before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reward_loop.errors import ConfigError
from reward_loop.rubrics.judges.service_settings import McpSettings, OpenAISettings, StdioSettings, read_services

SEEDS = """
mcp_services:
  style_judge:
    type: openai_llm
    endpoint: http://vllm-service:8000
    model: llama-3.1-70b-instruct
  safety_check: {type: mcp, endpoint: "http://safety:8080", tool: judge_safety}
  local: {type: stdio, command: python -m "my judge" --fast}
"""


def test_the_mapping_of_the_seed_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "services.yaml"
    path.write_text(SEEDS)
    services = read_services(path)
    assert isinstance(services["style_judge"], OpenAISettings)
    assert services["style_judge"].model == "llama-3.1-70b-instruct"
    assert isinstance(services["safety_check"], McpSettings)
    assert services["safety_check"].max_concurrency == 64
    assert isinstance(services["local"], StdioSettings)
    assert services["local"].command == ("python", "-m", "my judge", "--fast")
    assert read_services(str(path)) == services


@pytest.mark.parametrize(
    ("service", "problem"),
    [
        (
            {"type": "mcp", "endpoint": "http://x", "retires": 1},
            r"mcp_services.s.retires: .* no such key; did you mean retries\?",
        ),
        ({"type": "mcp"}, r"mcp_services.s.endpoint: Field required"),
        ({"type": "mcp", "endpoint": "x:80"}, r"mcp_services.s.endpoint"),
        ({"type": "grpc", "endpoint": "http://x"}, r"mcp_services.s: .*'mcp', 'stdio', 'openai_llm', 'inproc'"),
        ({"endpoint": "http://x"}, r"mcp_services.s: Unable to extract tag using discriminator 'type'"),
        ({"type": "mcp", "endpoint": "http://x", "max_concurrency": 0}, r"mcp_services.s.max_concurrency"),
        ({"type": "mcp", "endpoint": "http://x", "timeout_s": float("nan")}, r"mcp_services.s.timeout_s"),
        ({"type": "mcp", "endpoint": "http://x", "cache": -1}, r"mcp_services.s.cache"),
        ({"type": "stdio", "command": ""}, r"mcp_services.s.command"),
        ({"type": "openai_llm", "prices": {"prompt": -1}}, r"mcp_services.s.prices.prompt"),
        ({"type": "openai_llm", "enforce": "regex"}, r"mcp_services.s.enforce"),
        ("http://x", r"mcp_services.s"),
        (None, r"mcp_services.s"),
    ],
)
def test_a_service_that_can_not_work_is_refused(service: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_services({"s": service})


def test_all_problems_come_together() -> None:
    with pytest.raises(ConfigError) as error:
        read_services({"a b": {"type": "inproc"}, "c": {"type": "mcp"}, "d": {"type": "stdio"}})
    assert [line.split(":")[0].strip() for line in str(error.value).splitlines()] == [
        "mcp_services.a b",
        "mcp_services.c.endpoint",
        "mcp_services.d.command",
    ]


def test_services_are_a_mapping() -> None:
    with pytest.raises(ConfigError, match="mcp_services must be a mapping"):
        read_services({"mcp_services": ["style_judge"]})

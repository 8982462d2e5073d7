"""The judges that a reward configuration names, built from its mappings."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from reward_loop.errors import ConfigError
from reward_loop.rubrics.judges.builtin import FACTORIES
from reward_loop.rubrics.judges.services import JudgeServices
from reward_loop.rubrics.observation import Action, Observation
from reward_loop.rubrics.resources import Resources
from reward_loop.rubrics.rubric import Rubric
from tests.processes import ROOT
from tests.rubrics.judges.judge_model import obeying
from tests.scoring.service import service

SEEN = Observation(metadata={"prompt": "6 * 7?", "ground_truth": "42", "history": [{"role": "user", "content": "hi"}]})


def built(name: str, config: Mapping[str, Any], **resources: Any) -> Rubric:
    return FACTORIES[name](config, Resources(**resources))


async def score(rubric: Rubric) -> Any:
    return await rubric(Action("It is 42."), SEEN)


async def test_a_judge_asks_the_model_behind_the_router_unless_it_has_an_endpoint() -> None:
    config = {"prompt_template": "Rate {completion}", "scale": [1, 5], "votes": 2, "sampling": {"temperature": 1.0}}
    async with service(obeying(lambda _: {"reasoning": "ok", "score": 4})) as model:
        for where in ({"router_address": model.address}, {}):
            more = {} if where else {"endpoint": model.base_url, "model": "m"}
            judge = built("builtin.llm_judge", {**config, **more}, **where)
            assert (await score(judge), judge.scale) == (4, (1, 5))
        assert [asked.get("model") for asked in model.asked] == [None, "m"]
        assert all(asked["temperature"] == 1.0 and asked["n"] == 2 for asked in model.asked)


async def test_criteria_and_pairs_are_judged() -> None:
    async with service(obeying(lambda _: {"right": "yes"}), obeying(lambda _: "tie")) as model:
        criteria = built("builtin.criteria", {"criteria": {"right": "The result is right."}}, router_address=model.address)
        assert await score(criteria) == 1.0
        pairwise = built("builtin.pairwise", {"against": "ground_truth"}, router_address=model.address)
        assert await score(pairwise) == 0.5


async def test_a_service_gets_arguments_of_the_step_lists_as_they_are() -> None:
    given: list[Any] = []

    def judge(text: str, context: object, strict: bool) -> dict[str, Any]:
        given.extend([text, context, strict])
        return {"score": 0.5, "reasoning": "so"}

    async with JudgeServices({"style": {"type": "inproc"}}, functions={"style": judge}) as judges:
        arguments = {"text": "A: {completion}", "context": "{metadata.history}", "strict": True}
        rubric = built("builtin.mcp", {"service": "style", "arguments": arguments}, judges=judges)
        result = await score(rubric)
        assert (result, result.extra) == (0.5, {"reasoning": "so"})
        with pytest.raises(ConfigError, match=r"does not take \['code'\]"):
            built("builtin.mcp", {"service": "style", "arguments": {"code": "{completion}"}}, judges=judges)
    assert given == ["A: It is 42.", SEEN.metadata["history"], True]


@pytest.mark.parametrize(
    ("name", "config", "problem"),
    [
        ("builtin.llm_judge", {}, "prompt_template: Field required"),
        ("builtin.llm_judge", {"prompt_template": "x", "vote": 3}, "vote: Extra inputs .* it takes .*votes"),
        ("builtin.llm_judge", {"prompt_template": "x"}, "no endpoint"),
        ("builtin.llm_judge", {"prompt_template": "{x}", "endpoint": "http://x", "model": "m"}, "placeholder"),
        ("builtin.llm_judge", {"prompt_template": "x", "endpoint": "http://x"}, "which model"),
        ("builtin.criteria", {"criteria": [], "endpoint": "http://x", "model": "m"}, "at least 1"),
        ("builtin.pairwise", {"against": "b c", "endpoint": "http://x", "model": "m"}, "against"),
        ("builtin.mcp", {"service": "style"}, "no mcp_services are configured"),
        ("builtin.mcp", {}, "service: Field required"),
    ],
)
def test_a_configuration_that_can_not_work_is_refused(name: str, config: Mapping[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        built(name, config)


def test_importing_judges_loads_neither_the_sdk_nor_torch() -> None:
    program = "import sys, reward_loop.rubrics.judges.builtin; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert "reward_loop" in loaded
    assert loaded & {"mcp", "mcp_types", "torch", "ray", "openai", "anthropic", "transformers"} == set()


def test_without_the_sdk_a_judge_by_mcp_says_what_to_install() -> None:
    program = """
import asyncio, sys
sys.modules["mcp"] = None  # as where it is not installed
from reward_loop.rubrics.judges import JudgeServices
asyncio.run(JudgeServices({"s": {"type": "mcp", "endpoint": "http://127.0.0.1:1"}}).open())
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "pip install 'reward-loop[mcp]'" in done.stderr.splitlines()[-1]

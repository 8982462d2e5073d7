"""What docs/judges.md shows of YAML is valid."""

from __future__ import annotations

import re
from typing import Any

import yaml

from reward_loop.rubrics.judges.builtin import FACTORIES
from reward_loop.rubrics.judges.criterion import read_criteria
from reward_loop.rubrics.judges.service_settings import read_services
from reward_loop.rubrics.judges.services import JudgeServices
from reward_loop.rubrics.resources import Resources
from tests.processes import ROOT

PAGE = (ROOT / "docs" / "judges.md").read_text(encoding="utf-8")


def test_the_configuration_and_the_criteria_of_the_page_can_be_built() -> None:
    shown: list[dict[str, Any]] = [
        yaml.safe_load(block) for block in re.findall(r"^```yml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    ]
    rewards, criteria = shown
    assert [criterion.name for criterion in read_criteria(criteria["criteria"])] == ["correct", "clear"]
    assert read_services(rewards).keys() == {"style_judge"}
    judges = JudgeServices(rewards["mcp_services"])
    for entry in rewards["episode_end"]:
        config = entry["config"] | ({"criteria": criteria["criteria"]} if entry["name"] == "criteria" else {})
        FACTORIES[entry["rubric"]](config, Resources(judges=judges))
    assert {entry["rubric"] for entry in rewards["episode_end"]} | {"builtin.pairwise"} == FACTORIES.keys()

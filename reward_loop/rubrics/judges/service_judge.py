"""The rubric that asks a judge service."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from reward_loop.rubrics.judges.fields import FIELDS, StepFields
from reward_loop.rubrics.judges.services import JudgeServices
from reward_loop.rubrics.judges.template import PromptTemplate
from reward_loop.rubrics.rubric import Rubric

DEFAULT_ARGUMENTS: Mapping[str, str] = MappingProxyType({"text": "{completion}"})


class ServiceJudge(Rubric):
    """Call `service` and return its answer: "score", and all else as extra.

    `arguments` are texts with placeholders (`FIELDS`); one that is a single placeholder is given as it is, such as a list. What
    the service's tool takes is checked here, where the services are open, else at each call.
    """

    def __init__(self, services: JudgeServices, service: str, arguments: Mapping[str, Any] = DEFAULT_ARGUMENTS) -> None:
        self._services = services
        self._service = service
        self._arguments = {
            name: PromptTemplate(given, FIELDS) if isinstance(given, str) else given for name, given in arguments.items()
        }
        if services.is_open:
            services.require(service, arguments)

    async def forward(self, action: Any, observation: Any) -> dict[str, Any]:
        """Return the service's answer. Raises JudgeError where it gave none."""
        fields = StepFields(action, observation)
        arguments = {
            name: given.value(fields) if isinstance(given, PromptTemplate) else given for name, given in self._arguments.items()
        }
        return await self._services.call_tool(self._service, **arguments)

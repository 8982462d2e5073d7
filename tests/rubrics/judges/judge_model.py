"""What a judge's model answers in tests: texts that obey the form they were asked for, or a refusal as vLLM's."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tests.scoring.service import Answer, Reaction, completion, completions

USAGE = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}


def obeying(decide: Callable[[str], Any], usage: object = USAGE) -> Reaction:
    """Answer each prompt with the JSON of `decide(prompt)`; 400 where that is not of the form which the request enforces."""

    def answer(body: dict[str, Any]) -> Answer:
        said = decide(body["messages"][-1]["content"])
        enforced = body.get("structured_outputs", {})
        if "choice" in enforced:
            return completion(said, usage) if said in enforced["choice"] else _refused(f"{said!r} is no choice")
        form = enforced["json"]
        Draft202012Validator.check_schema(form)
        problems = [error.message for error in Draft202012Validator(form).iter_errors(said)]
        return _refused(problems[0]) if problems else completions([json.dumps(said)] * body.get("n", 1), usage)

    return answer


def _refused(why: str) -> Answer:
    return 400, {}, json.dumps({"error": {"message": why}})

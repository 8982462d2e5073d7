"""Judging by several criteria, some of them in each call.

Invariants: a judge decides every criterion it was asked for exactly once, by one of that criterion's choices, or it has given no
answer at all; what a criterion is worth does not depend on those it was asked with.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import partial
from typing import Any

from reward_loop.errors import ConfigError
from reward_loop.rubrics.judges.criterion import CriteriaLike, Criterion, read_criteria
from reward_loop.rubrics.judges.fields import FIELDS, StepFields
from reward_loop.rubrics.judges.openai_compatible import OpenAICompatible, texts_of, unusable
from reward_loop.rubrics.judges.template import PromptTemplate
from reward_loop.rubrics.rubric import Rubric
from reward_loop.rubrics.score import Score
from reward_loop.scoring.side_by_side import side_by_side

DEFAULT_PROMPT = """You judge a response by criteria. Decide each of them for itself, by what the response says and nothing else.

The task:
{prompt}

The response:
{completion}

The criteria, each with the choices that there are, from the worst to the best:
{criteria}

Answer with a JSON object that has the name of each criterion as a key and your choice as its value."""


class CriteriaJudge(Rubric):
    """Have a judge decide each criterion, `batch` of them per call, and return the weighted mean of what its choices are worth.

    The extra has `criteria`, the score of each, and `choices`. `prompt_template` knows `FIELDS` and `{criteria}`.
    """

    def __init__(
        self,
        criteria: CriteriaLike,
        client: OpenAICompatible,
        *,
        prompt_template: str = DEFAULT_PROMPT,
        batch: int = 8,
    ) -> None:
        if batch < 1:
            raise ConfigError(f"batch={batch} criteria can't be asked for in one call; it must be at least 1")
        self.criteria = read_criteria(criteria)
        self._template = PromptTemplate(prompt_template, {*FIELDS, "criteria"})
        if "criteria" not in self._template.names:
            raise ConfigError("the prompt of criteria must show them: put {criteria} into it")
        self._client = client
        self._batches = [self.criteria[start : start + batch] for start in range(0, len(self.criteria), batch)]

    async def forward(self, action: Any, observation: Any) -> Score:
        """Return the weighted mean. Raises JudgeError where a criterion was not decided, or more than once."""
        fields = StepFields(action, observation)
        answers = await side_by_side([partial(self._decide, batch, fields) for batch in self._batches])
        choices = {name: choice for answer in answers for name, choice in answer.items()}
        scores = {criterion.name: criterion.worth(choices[criterion.name]) for criterion in self.criteria}
        total = math.fsum(criterion.weight for criterion in self.criteria)
        mean = math.fsum(criterion.weight * scores[criterion.name] for criterion in self.criteria) / total
        return Score(mean, {"criteria": scores, "choices": choices})

    async def _decide(self, batch: Sequence[Criterion], fields: StepFields) -> dict[str, str]:
        prompt = self._template.filled(fields, criteria=_shown(batch))
        reply = await self._client.chat([{"role": "user", "content": prompt}], form=_form(batch))
        text = texts_of(reply)[0]
        choices, why = _choices(text, batch)
        if why:
            raise unusable(reply, text, why)
        return choices


def _shown(batch: Sequence[Criterion]) -> str:
    return "\n".join(f"- {each.name}: {each.description} [{' | '.join(each.choices)}]" for each in batch)


def _form(batch: Sequence[Criterion]) -> dict[str, Any]:
    """Return the JSON schema of an answer."""
    return {
        "type": "object",
        "properties": {each.name: {"type": "string", "enum": list(each.choices)} for each in batch},
        "required": [each.name for each in batch],
        "additionalProperties": False,
    }


def _choices(text: str, batch: Sequence[Criterion]) -> tuple[dict[str, str], str]:
    """Return the choice for each criterion, and why the answer can't be used ("": it can)."""
    pairs: Any = None
    try:
        pairs = json.loads(text.strip().removeprefix("```json").removesuffix("```"), object_pairs_hook=list, strict=False)
    except (ValueError, RecursionError):
        return {}, "it is no JSON"
    known = {each.name: each for each in batch}
    if not isinstance(pairs, list) or not all(isinstance(pair, tuple) for pair in pairs):
        return {}, "it is no JSON object"
    names = [name for name, _ in pairs]
    if sorted(names) != sorted(known):
        return {}, f"it must decide each of {list(known)} exactly once"
    if wrong := [name for name, choice in pairs if choice not in known[name].choices]:
        return {}, f"{wrong} have other choices: {[list(known[name].choices) for name in wrong]}"
    return dict(pairs), ""

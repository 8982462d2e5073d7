"""Comparing a sample with another answer, in both orders, since judges prefer the one that they read first (arXiv:2306.05685)."""

from __future__ import annotations

from typing import Any, Literal

from reward_loop.errors import ConfigError, Unscorable
from reward_loop.rubrics.judges.fields import FIELDS, StepFields
from reward_loop.rubrics.judges.openai_compatible import OpenAICompatible
from reward_loop.rubrics.judges.template import PromptTemplate
from reward_loop.rubrics.rubric import Rubric
from reward_loop.rubrics.score import Score
from reward_loop.scoring.judging.comparison import Comparison, Winner
from reward_loop.scoring.side_by_side import side_by_side

DEFAULT_PROMPT = """Which of two responses to a task is better? Their order says nothing.

The task:
{prompt}

Response A:
{first}

Response B:
{second}

Answer with A or B alone, or with tie if neither is better."""

_LABELS = ("A", "B", "tie")


class PairwiseJudge(Rubric):
    """Return 1 where a judge prefers the sample to the answer at `against`, 0 where it prefers that one, 0.5 for a tie.

    Orders that disagree are a tie, or raise Unscorable; the extra has `agreed` and `orders`. `against` is a placeholder's path,
    such as "ground_truth" or "metadata.reference"; `prompt_template` knows `FIELDS`, `{first}` and `{second}`.
    """

    def __init__(
        self,
        client: OpenAICompatible,
        *,
        against: str = "ground_truth",
        prompt_template: str = DEFAULT_PROMPT,
        disagreement: Literal["tie", "unscorable"] = "tie",
    ) -> None:
        self._against = PromptTemplate(f"{{{against}}}", FIELDS)
        if not self._against.names:
            raise ConfigError(f"against={against!r} must be the path of a placeholder, such as metadata.reference")
        self._template = PromptTemplate(prompt_template, {*FIELDS, "first", "second"})
        if missing := {"first", "second"} - set(self._template.names):
            raise ConfigError(f"the prompt must show both answers; it lacks {sorted(missing)}")
        self._client = client
        self._disagreement = disagreement

    async def forward(self, action: Any, observation: Any) -> Score:
        """Return the score. Raises JudgeError where an order brought no verdict."""
        fields = StepFields(action, observation)
        ours, other = str(fields["completion"]), self._against.filled(fields)
        one, two = await side_by_side(
            [
                lambda: self._better(fields, ours, other, ("first", "second")),
                lambda: self._better(fields, other, ours, ("second", "first")),
            ]
        )
        if one != two and self._disagreement == "unscorable":
            raise Unscorable(f"the judge prefers the {one} answer, and in the other order the {two}")
        compared = Comparison(one if one == two else "tie", one == two, (one, two), tokens=0)
        return Score(compared.score, {"agreed": compared.agreed, "orders": list(compared.orders)})

    async def _better(self, fields: StepFields, a: str, b: str, names: tuple[Winner, Winner]) -> Winner:
        prompt = self._template.filled(fields, first=a, second=b)
        chosen = await self._client.choose([{"role": "user", "content": prompt}], _LABELS)
        by_label: dict[str, Winner] = dict(zip(_LABELS, (*names, "tie"), strict=True))
        return by_label[chosen]

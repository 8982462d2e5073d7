"""The rewards of a process model: one for each step of the response, at the token with which the step ends.

The separator divides the response into steps; blank ones are none. The model reads the step tag after each step, without the
separator, as Qwen2.5-Math-PRM was trained to. Invariant: every step has exactly one score, and tokens at which no step ends have
0; what two steps get that end with the same token is added.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any, Literal, assert_never

from reward_loop.errors import ConfigError, RewardServerError
from reward_loop.functions.conversation import conversation
from reward_loop.functions.scored_conversation import ScoredModel, labelled
from reward_loop.functions.step_ends import end_tokens
from reward_loop.scoring.reward_client import Score

StepReduce = Literal["min", "last", "mean"]


@dataclass(frozen=True, slots=True)
class Step:
    """A step of a response, and the offset at which it ends there."""

    text: str
    end: int


def split_steps(response: str, separator: str) -> list[Step]:
    """Return the steps of a response, in order, blank ones left out; a response of nothing else is one step."""
    steps: list[Step] = []
    start = 0
    for text in response.split(separator):
        if text.strip():
            steps.append(Step(text, start + len(text)))
        start += len(text) + len(separator)
    return steps or [Step(response, len(response))]


def reduced(scores: Sequence[float], reduce: StepReduce) -> float:
    """Return one number for the steps: the worst (arXiv:2305.20050 ranks solutions so), the last, or the mean."""
    match reduce:
        case "min":
            return min(scores)
        case "last":
            return scores[-1]
        case "mean":
            return fsum(scores) / len(scores)
        case _:
            assert_never(reduce)


def placed(scores: Sequence[float], tokens: Sequence[int], length: int) -> list[float]:
    """Return `length` numbers: each score at its token, 0 elsewhere, scores of the same token added."""
    row = [0.0] * length
    for score, token in zip(scores, tokens, strict=True):
        row[token] += score
    return row


class ProcessReward:
    """A reward function: one score per step, placed at the step's end; reduced to one number for rollouts without token ids.

    A step's score is that of `label`: its probability where the model is asked for such, else its logit.
    """

    def __init__(
        self,
        model: ScoredModel,
        tag: str,
        separator: str = "\n\n",
        *,
        label: int = -1,
        reduce: StepReduce = "min",
        tokenizer: Any = None,
    ) -> None:
        if not separator or not tag:
            raise ConfigError(f"step_separator={separator!r} and step_tag={tag!r} must not be empty (reward_model.scoring)")
        self.name = model.name
        self._model = model
        self._tag = tag
        self._separator = separator
        self._label = label
        self._reduce: StepReduce = reduce
        self._tokenizer = tokenizer

    async def __call__(self, *, solution_str: str, raw_prompt: Any, response_ids: list[int] | None = None) -> dict[str, Any]:
        """Return the scores with `rm_steps` (each step's), `rm_score` (them reduced), `rm_model`, `rm_tokens` and `rm_version`.

        Raises DataError for what the model can't be asked, and RewardServerError unless there is one score for each step.
        """
        steps = split_steps(solution_str, self._separator)
        scored = await self._model.score(conversation(raw_prompt, [step.text for step in steps], self._tag))
        scores = [labelled(values, self._label, self.name) for values in self._of_steps(scored.score, len(steps))]
        score = reduced(scores, self._reduce)
        info = {"rm_score": score, "rm_steps": scores, **scored.about(self.name)}
        if not response_ids:
            return {"score": score, **info}
        tokens = await self._ends(response_ids, solution_str, steps)
        return {"score": placed(scores, tokens, len(response_ids)), **info}

    def _of_steps(self, score: Score, steps: int) -> list[list[float]]:
        rows = score if isinstance(score, list) else [score]
        if len(rows) != steps:
            raise RewardServerError(
                f"the reward model {self.name} answered {len(rows)} step scores for {steps} steps; its server must score at the "
                f"step tag {self._tag!r} (pooling STEP), and know it by the same id"
            )
        return [row if isinstance(row, list) else [row] for row in rows]

    async def _ends(self, ids: list[int], text: str, steps: Sequence[Step]) -> list[int]:
        if not text:
            return [len(ids) - 1]
        if self._tokenizer is None:
            raise ConfigError(
                "where the steps of a response end among its tokens takes the policy's tokenizer: "
                "set actor_rollout_ref.model.path (or tokenizer_path)"
            )
        return await asyncio.to_thread(end_tokens, self._tokenizer, ids, text, [step.end for step in steps])

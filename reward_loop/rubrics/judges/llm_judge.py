"""The rubric that shows a sample to a language model and reads a score in what it writes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from reward_loop.errors import ConfigError, JudgeError
from reward_loop.rubrics.judges.fields import FIELDS, StepFields
from reward_loop.rubrics.judges.openai_compatible import OpenAICompatible, texts_of
from reward_loop.rubrics.judges.reading import Reading, read_by, read_score
from reward_loop.rubrics.judges.template import PromptTemplate
from reward_loop.rubrics.judges.votes import mean_of
from reward_loop.rubrics.rubric import Rubric
from reward_loop.rubrics.score import Score
from reward_loop.scoring.side_by_side import side_by_side


class LLMClient(Protocol):
    """What is needed of a client of another kind, such as OpenEnv's."""

    async def complete(self, prompt: str) -> object:
        """Return what the model writes to a prompt."""
        ...


class LLMJudge(Rubric):
    """Fill `prompt_template` (its placeholders: `FIELDS`), ask `client`, and return the score in the answer.

    Without a `score_pattern`, an `OpenAICompatible` is held to JSON with `reasoning` and `score`; of other texts the one score
    that they give counts. `normalize` clips to [0, 1]; with a `scale` instead, a score outside it is an error and one inside it
    is returned as it is. An answer without a score is a JudgeError, or `default_score` where that is given. Of several `votes`
    the mean counts, and the extra says how far they agree.
    """

    def __init__(
        self,
        prompt_template: str,
        client: OpenAICompatible | LLMClient,
        *,
        score_pattern: str | None = None,
        default_score: float | None = None,
        normalize: bool = True,
        scale: tuple[float, float] | None = None,
        votes: int = 1,
        system: str | None = None,
        timeout_s: float = 120.0,
    ) -> None:
        if votes < 1 or (scale is not None and not scale[0] < scale[1]):
            raise ConfigError(f"votes={votes} must be at least 1, and scale={scale} (lowest, highest)")
        self.score_pattern = score_pattern
        self.default_score = default_score
        self.normalize = normalize
        self.votes = votes
        self.system = system
        self.prompt_template = prompt_template
        self._client = client
        self._timeout_s = timeout_s
        if scale is not None:
            self.scale = scale  # type: ignore[misc] # pyright: ignore[reportAttributeAccessIssue]

    @property
    def prompt_template(self) -> str:
        """The prompt with its placeholders."""
        return self._template.text

    @prompt_template.setter
    def prompt_template(self, text: str) -> None:
        self._template = PromptTemplate(text, FIELDS)

    @property
    def score_pattern(self) -> str | None:
        """The regular expression that finds the score; None: JSON, or the one score that a text gives."""
        return self._pattern and self._pattern.pattern

    @score_pattern.setter
    def score_pattern(self, pattern: str | None) -> None:
        try:
            self._pattern = None if pattern is None else re.compile(pattern)
        except re.error as error:
            raise ConfigError(f"score_pattern={pattern!r} is no regular expression: {error}") from None

    async def forward(self, action: Any, observation: Any) -> Score:
        """Return the judge's score, and what it gave as its reasons. Raises JudgeError where there is none."""
        texts = await self._answers(self._render_prompt(action, observation))
        scores = [self._parse_score(text) for text in texts]
        return mean_of(scores, texts, reasons_in(texts))

    def _render_prompt(self, action: Any, observation: Any) -> str:
        """Return the prompt; override it to build another."""
        return self._template.filled(StepFields(action, observation))

    def _parse_score(self, response: str) -> float | None:
        """Return the score in an answer, None where it gives none; override it to read another form."""
        reading = read_score(response) if self._pattern is None else read_by(self._pattern, response)
        score = None if reading is None else self._scaled(reading)
        return self.default_score if score is None else score

    def _scaled(self, reading: Reading) -> float | None:
        if self.scale is not None:
            score = reading.on(self.scale)
            return score if score is not None and self.scale[0] <= score <= self.scale[1] else None
        if not self.normalize:
            return reading.value if reading.scale is None else reading.on((0.0, 1.0))
        score = reading.on((0.0, 1.0))
        return None if score is None else min(1.0, max(0.0, score))

    async def _answers(self, prompt: str) -> list[str]:
        messages = [{"role": "user", "content": prompt}]
        if self.system is not None:
            messages.insert(0, {"role": "system", "content": self.system})
        if isinstance(self._client, OpenAICompatible):
            several = {"n": self.votes} if self.votes > 1 else {}
            form = verdict_form(self.scale or (0.0, 1.0)) if self._pattern is None else None
            return texts_of(await self._client.chat(messages, form=form, **several))
        return await self._foreign(self._client, "\n\n".join(message["content"] for message in messages))

    async def _foreign(self, client: LLMClient, prompt: str) -> list[str]:
        deadline = asyncio.timeout(self._timeout_s)
        try:
            async with deadline:
                texts = await side_by_side([lambda: client.complete(prompt)] * self.votes)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise JudgeError(f"the judge did not answer within {self._timeout_s} s (timeout_s)") from None
        if strange := [text for text in texts if not isinstance(text, str)]:
            raise JudgeError(f"{type(client).__name__}.complete must return text; it returned {strange[0]!r:.200}")
        return [text for text in texts if isinstance(text, str)]

    def state_dict(self) -> dict[str, Any]:
        """Return the settings."""
        return {name: getattr(self, name) for name in _SETTINGS} | super().state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` returned."""
        for name in _SETTINGS:
            setattr(self, name, state.get(name, getattr(self, name)))
        super().load_state_dict(state)


_SETTINGS = ("prompt_template", "score_pattern", "default_score", "normalize")


def verdict_form(scale: tuple[float, float]) -> dict[str, Any]:
    """Return the JSON schema of a score on a scale, after the reasons for it."""
    score = {"type": "number", "minimum": scale[0], "maximum": scale[1]}
    return {
        "type": "object",
        "properties": {"reasoning": {"type": "string", "maxLength": 2000}, "score": score},
        "required": ["reasoning", "score"],
        "additionalProperties": False,
    }


def reasons_in(texts: Sequence[str]) -> dict[str, Any]:
    """Return the reasons of the first answer that is JSON and gives some."""
    for text in texts:
        try:
            said = json.loads(text, strict=False)
        except (ValueError, RecursionError):
            continue
        if isinstance(said, dict) and isinstance(said.get("reasoning"), str):
            return {"reasoning": said["reasoning"]}
    return {}

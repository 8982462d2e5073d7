"""A prompt names a letter, the policy answers with six tokens, and nobody here says what they are worth: the reward loop does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reward_loop.rinker.rendering import StopCondition, TokensWithLogprobs
from reward_loop.rinker.rl.types import Action, Env, EnvGroupBuilder, Observation, RLDataset, RLDatasetBuilder, StepResult
from reward_loop.rinker.types import ModelInput

ANSWER_TOKENS = 6
_NO_STOP = list[int]()


class LetterEnv(Env):
    """One prompt. `true_share` is what people wanted: it is measured, and the policy never learns of it."""

    def __init__(self, letter: str, tokenizer: Any) -> None:
        self._letter, self._tokenizer = letter, tokenizer

    async def initial_observation(self) -> tuple[Observation, StopCondition]:
        return ModelInput.from_ints(self._tokenizer.encode(f"<|im_start|>{self._letter}")), _NO_STOP

    async def step(self, action: Action, *, extra: TokensWithLogprobs | None = None) -> StepResult:
        answer = self._tokenizer.decode(action, skip_special_tokens=True)
        metrics = {"true_share": answer.count(self._letter) / ANSWER_TOKENS}
        return StepResult(0.0, True, ModelInput.empty(), _NO_STOP, metrics, {"answer": answer})

    def reward_columns(self) -> Mapping[str, Any]:
        """The reward model reads prompt and answer in its own chat template."""
        return {"raw_prompt": [{"role": "user", "content": f"{self._letter}:"}], "data_source": "letters"}


@dataclass(frozen=True, slots=True)
class LetterGroup(EnvGroupBuilder):
    """Answers to the same letter."""

    letter: str
    size: int
    tokenizer: Any

    async def make_envs(self) -> Sequence[Env]:
        return [LetterEnv(self.letter, self.tokenizer) for _ in range(self.size)]


@dataclass(frozen=True, slots=True)
class LettersDataset(RLDataset):
    """Every letter in turn."""

    letters: str
    batches: int
    groups: int
    size: int
    tokenizer: Any

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        first = index * self.groups
        names = [self.letters[place % len(self.letters)] for place in range(first, first + self.groups)]
        return [LetterGroup(letter, self.size, self.tokenizer) for letter in names]

    def __len__(self) -> int:
        return self.batches


@dataclass(frozen=True, slots=True)
class Letters(RLDatasetBuilder):
    """There is nothing to hold out: six prompts are all there are."""

    train: LettersDataset

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        return self.train, None


def dataset_builder(batch_size: int, group_size: int, tokenizer: Any, letters: str, batches: int) -> RLDatasetBuilder:
    """Return the builder; `letters` and `batches` are set by `data.kwargs`."""
    return Letters(LettersDataset(letters, batches, batch_size, group_size, tokenizer))

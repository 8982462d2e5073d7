"""Copy three digits: the task as environments, as `rinker train rl` asks for them, and its reward as a reward function."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reward_loop.rinker.rendering import StopCondition, TokensWithLogprobs
from reward_loop.rinker.rl.types import Action, Env, EnvGroupBuilder, Observation, RLDataset, RLDatasetBuilder, StepResult
from reward_loop.rinker.types import ModelInput

DIGITS = 3
_NO_STOP = list[int]()
"""Nothing ends an answer but its length."""


def share_correct(solution_str: str, ground_truth: str) -> float:
    """Return how many of the digits stand at their place: the reward, whoever asks for it."""
    return sum(said == digit for said, digit in zip(solution_str, ground_truth, strict=False)) / len(ground_truth)


class CopyEnv(Env):
    """One prompt, such as `<|im_start|>407=`; the answer is three tokens, and the episode is over."""

    def __init__(self, digits: str, tokenizer: Any) -> None:
        self._digits, self._tokenizer = digits, tokenizer

    async def initial_observation(self) -> tuple[Observation, StopCondition]:
        return ModelInput.from_ints(self._tokenizer.encode(f"<|im_start|>{self._digits}=")), _NO_STOP

    async def step(self, action: Action, *, extra: TokensWithLogprobs | None = None) -> StepResult:
        answer = self._tokenizer.decode(action, skip_special_tokens=True)
        correct = float(answer == self._digits)
        return StepResult(
            share_correct(answer, self._digits), True, ModelInput.empty(), _NO_STOP, {"correct": correct}, {"answer": answer}
        )

    def reward_columns(self) -> Mapping[str, Any]:
        """What the reward loop is told, if it is asked for the reward instead of `step`."""
        return {"reward_model": {"ground_truth": self._digits}, "data_source": "copy_digits"}


@dataclass(frozen=True, slots=True)
class CopyGroup(EnvGroupBuilder):
    """The same digits, several times: answers are compared with those to the same prompt."""

    digits: str
    size: int
    tokenizer: Any

    async def make_envs(self) -> Sequence[Env]:
        return [CopyEnv(self.digits, self.tokenizer) for _ in range(self.size)]

    def logging_tags(self) -> Sequence[str]:
        return ("copy",)


@dataclass(frozen=True, slots=True)
class CopyDataset(RLDataset):
    """Digits that depend on the seed and the place alone: a run that goes on sees what it would have seen."""

    name: str
    batches: int
    groups: int
    group_size: int
    tokenizer: Any

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        draw = random.Random(f"{self.name}/{index}")
        prompts = ["".join(str(draw.randrange(10)) for _ in range(DIGITS)) for _ in range(self.groups)]
        return [CopyGroup(prompt, self.group_size, self.tokenizer) for prompt in prompts]

    def __len__(self) -> int:
        return self.batches


@dataclass(frozen=True, slots=True)
class CopyDigits(RLDatasetBuilder):
    """What is trained on, and 64 prompts to evaluate on, one answer each."""

    batches: int
    batch_size: int
    group_size: int
    seed: int
    tokenizer: Any

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        train = CopyDataset(f"train/{self.seed}", self.batches, self.batch_size, self.group_size, self.tokenizer)
        return train, CopyDataset(f"test/{self.seed}", 1, 64, 1, self.tokenizer)


def dataset_builder(batch_size: int, group_size: int, seed: int, tokenizer: Any, batches: int = 150) -> RLDatasetBuilder:
    """Return the builder; `batches` is set by `data.kwargs`, the rest are the run's own settings."""
    return CopyDigits(batches, batch_size, group_size, seed, tokenizer)

"""Learn by reinforcement alone to repeat three digits; the reward of an answer is the share of its digits that are right.

Written for `import tinker`: it runs with the SDK, and with `from reward_loop import rinker as tinker`.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

_BEGIN, _ANSWER = 10, 11
DIGITS = 3


@dataclass(frozen=True, slots=True)
class CopyDigits:
    """The task and how it is trained: `batch` prompts, `group` answers of each."""

    batch: int = 32
    group: int = 8
    learning_rate: float = 1e-3
    seed: int = 0

    def train(self, tinker: Any, client: Any, iterations: int) -> list[float]:
        """Train a model; return the mean reward of each iteration, which the seed decides."""
        draw = random.Random(self.seed)
        return [self._iteration(tinker, client, draw) for _ in range(iterations)]

    def _iteration(self, tinker: Any, client: Any, draw: random.Random) -> float:
        sampler = client.save_weights_and_get_sampling_client().result()
        prompts = [[draw.randrange(10) for _ in range(DIGITS)] for _ in range(self.batch)]
        futures = [
            sampler.sample(
                prompt=tinker.ModelInput.from_ints([_BEGIN, *digits, _ANSWER]),
                num_samples=self.group,
                sampling_params=tinker.SamplingParams(max_tokens=DIGITS, seed=draw.randrange(2**31), stop=[]),
            )
            for digits in prompts
        ]
        groups = [future.result().sequences for future in futures]
        rewards = [
            [share_correct(answer.tokens, digits) for answer in group] for digits, group in zip(prompts, groups, strict=True)
        ]
        data = [datum for case in zip(prompts, groups, rewards, strict=True) for datum in _data(tinker, *case)]
        passed = client.forward_backward(data, "importance_sampling")
        stepped = client.optim_step(tinker.AdamParams(learning_rate=self.learning_rate))
        passed.result()
        stepped.result()
        return sum(map(sum, rewards)) / (self.batch * self.group)


def share_correct(answer: list[int], digits: list[int]) -> float:
    """Return how many of the digits are repeated at their place."""
    return sum(given == wanted for given, wanted in zip(answer, digits, strict=True)) / len(digits)


def _data(tinker: Any, digits: list[int], group: Any, rewards: list[float]) -> list[Any]:
    mean = sum(rewards) / len(rewards)
    return [_datum(tinker, digits, answer, reward - mean) for answer, reward in zip(group, rewards, strict=True)]


def _datum(tinker: Any, digits: list[int], answer: Any, advantage: float) -> Any:
    tokens = [_BEGIN, *digits, _ANSWER, *answer.tokens]
    before = [0.0] * (len(tokens) - 1 - len(answer.tokens))  # of the prompt, which nobody drew
    return tinker.Datum(
        model_input=tinker.ModelInput.from_ints(tokens[:-1]),
        loss_fn_inputs={
            "target_tokens": tokens[1:],
            "logprobs": [*before, *answer.logprobs],
            "advantages": [*before, *[advantage] * len(answer.tokens)],
        },
    )

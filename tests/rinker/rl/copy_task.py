"""Copy three digits: the smallest task that a model with random weights learns by reinforcement, and the model for it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from reward_loop.rinker.rendering import StopCondition, TokensWithLogprobs
from reward_loop.rinker.rl.config import RLConfig
from reward_loop.rinker.rl.types import Action, Env, EnvGroupBuilder, Observation, RLDataset, RLDatasetBuilder, StepResult
from reward_loop.rinker.types import ModelInput

VOCABULARY, BEGIN, EQUALS, PAD, END = 16, 10, 11, 12, 13
DIGITS = 3


def write_model(path: Path, seed: int = 0) -> str:
    """Write a Qwen2 of 76k random weights over 16 tokens, without a tokenizer; return its directory."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=PAD,
        eos_token_id=END,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        architecture: Any = Qwen2ForCausalLM  # untyped
        model = architecture(config)
    model.save_pretrained(path)
    return str(path)


class CopyEnv(Env):
    """The reward is the share of the digits that were copied."""

    def __init__(self, digits: Sequence[int]) -> None:
        self.digits = list(digits)

    async def initial_observation(self) -> tuple[Observation, StopCondition]:
        return ModelInput.from_ints([BEGIN, *self.digits, EQUALS]), list[int]()

    async def step(self, action: Action, *, extra: TokensWithLogprobs | None = None) -> StepResult:
        right = sum(said == digit for said, digit in zip(action, self.digits, strict=False))
        correct = float(list(action) == self.digits)
        return StepResult(right / DIGITS, True, ModelInput.empty(), [], {"correct": correct})

    def reward_columns(self) -> Mapping[str, Any]:
        return {"reward_model": {"ground_truth": self.digits}, "data_source": "copy"}


MakeEnv = Callable[[Sequence[int]], Env]


class CopyGroup(EnvGroupBuilder):
    """The same digits for every environment of the group."""

    def __init__(self, digits: Sequence[int], size: int, make: MakeEnv = CopyEnv) -> None:
        self.digits, self.size, self.make = tuple(digits), size, make

    async def make_envs(self) -> Sequence[Env]:
        return [self.make(self.digits) for _ in range(self.size)]

    def logging_tags(self) -> Sequence[str]:
        return ["copy"]


class CopyDataset(RLDataset):
    """Digits that depend on the batch and the place in it."""

    def __init__(self, batches: int, groups: int, size: int, make: MakeEnv = CopyEnv, seed: int = 0) -> None:
        self.batches, self.groups, self.size, self.make, self.seed = batches, groups, size, make, seed

    def get_batch(self, index: int) -> Sequence[EnvGroupBuilder]:
        draw = random.Random(f"{self.seed}/{index}")
        return [CopyGroup([draw.randrange(10) for _ in range(DIGITS)], self.size, self.make) for _ in range(self.groups)]

    def __len__(self) -> int:
        return self.batches


class CopyBuilder(RLDatasetBuilder):
    """What a run is given instead of a configured builder."""

    def __init__(self, train: RLDataset, test: RLDataset | None = None) -> None:
        self.train, self.test = train, test

    async def __call__(self) -> tuple[RLDataset, RLDataset | None]:
        return self.train, self.test


def copy_config(log_path: Path, base_model: str, **settings: Any) -> RLConfig:
    """The settings that learn it: IS, the mean of the group subtracted, Adam at 1e-3."""
    base: dict[str, Any] = {
        "log_path": log_path,
        "model": {"base_model": base_model},
        "data": {"builder": "pkg://unused"},
        "batch_size": 32,
        "group_size": 8,
        "max_tokens": DIGITS,
        "adam": {"learning_rate": 1e-3},
        "save_every": 0,
        "eval_every": 0,
        "failures": {"backoff_s": 0.0},
    }
    return RLConfig.model_validate({**base, **settings})

"""A reward model small enough to train in a test, and preferences of which it can learn something."""

from __future__ import annotations

import random
from typing import Any

from torch import nn
from transformers import Qwen2Config

from reward_loop.training.encoding import EncodedPair
from reward_loop.training.reward_model import new_reward_model

VOCABULARY = 32
WANTED = 5


def config(**more: Any) -> Qwen2Config:
    sizes: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "max_position_embeddings": 64,
        "initializer_range": 0.1,
        "pad_token_id": 0,
        "eos_token_id": 1,
    }
    return Qwen2Config(**{**sizes, **more})


def tiny_model(*, labels: int = 1, seed: int = 0, **more: Any) -> nn.Module:
    return new_reward_model(config(num_labels=labels, **more), seed=seed)


def pairs(count: int, *, seed: int = 0, margin: float = 0.0, label: int | None = None) -> list[EncodedPair]:
    """The answer that holds the wanted token is chosen."""
    numbers = random.Random(seed)

    def answer(*wanted: int) -> tuple[int, ...]:
        rest = [numbers.randrange(8, VOCABULARY) for _ in range(numbers.randint(2, 8))]
        return tuple(numbers.sample([*wanted, *rest], len(wanted) + len(rest)))

    return [EncodedPair(answer(WANTED, WANTED), answer(), margin, label) for _ in range(count)]

"""The task of these recipes: a prompt names a letter, and the better of two answers is the one that holds more of it.

An untrained head hardly sees it, a small trained model learns it in seconds, and everyone can see who is right.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from transformers import Qwen2Config

from recipes import tiny_models
from reward_loop.training.preferences import Preference
from reward_loop.training.reward_model import new_reward_model, save_reward_model

LETTERS = "ABCDEF"
LENGTHS = (3, 8)


def prompt_of(letter: str) -> str:
    return f"{letter}:"


def preferences(train: int, held_out: int, *, seed: int = 0) -> tuple[list[Preference], list[Preference]]:
    """Return pairs to train on, and pairs to look at, no answer of which is in one that is trained on."""
    numbers = random.Random(seed)
    seen = set[tuple[str, str]]()

    def answer(letter: str) -> str:
        share = numbers.random()
        drawn = range(numbers.randint(*LENGTHS))
        return "".join(letter if numbers.random() < share else numbers.choice(LETTERS) for _ in drawn)

    def pair() -> tuple[str, str, str]:
        while True:
            letter = numbers.choice(LETTERS)
            worse, better = sorted((answer(letter), answer(letter)), key=lambda text: text.count(letter))
            if worse.count(letter) < better.count(letter):
                return letter, better, worse

    trained = list[Preference]()
    while len(trained) < train:
        letter, better, worse = pair()
        seen |= {(letter, better), (letter, worse)}
        trained.append(Preference(prompt_of(letter), better, worse))
    looked_at = list[Preference]()
    while len(looked_at) < held_out:
        letter, better, worse = pair()
        if not seen & {(letter, better), (letter, worse)}:
            looked_at.append(Preference(prompt_of(letter), better, worse))
    return trained, looked_at


def base_model(directory: str | Path, *, seed: int = 0) -> Path:
    """Write a reward model of random weights, of a size that two cores train in seconds, and return its directory."""
    tokenizer: Any = tiny_models.tokenizer()
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,  # of 32 each: vLLM on the CPU takes multiples of it
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.1,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    config.num_labels = 1
    return save_reward_model(new_reward_model(config, seed=seed), directory, tokenizer)

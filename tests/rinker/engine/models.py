"""Models small enough to be trained in a test, and data for them."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen2ForSequenceClassification

from recipes.tiny_models import tokenizer
from reward_loop.rinker.types import Datum, ModelInput

_QWEN2: Any = Qwen2Config  # with many settings of as many types
_LLAMA: Any = LlamaConfig
VOCABULARY = 16
POSITIONS = 32
SIZES: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": POSITIONS,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": None,
    "initializer_range": 0.1,
    "tie_word_embeddings": False,
}


def write_language_model(path: Path, *, seed: int = 0, with_tokenizer: bool = False, **more: Any) -> Path:
    sizes = {**SIZES, **more}
    if with_tokenizer:
        words = tokenizer()
        sizes |= {"vocab_size": len(words)}
        words.save_pretrained(path)
    return _written(path, seed, Qwen2ForCausalLM, _QWEN2(**sizes))


def write_llama(path: Path, **more: Any) -> Path:
    return _written(path, 0, LlamaForCausalLM, _LLAMA(**{**SIZES, **more}))


def write_reward_model(path: Path, *, seed: int = 0, **more: Any) -> Path:
    return _written(path, seed, Qwen2ForSequenceClassification, _QWEN2(**{**SIZES, "num_labels": 1, **more}))


def _written(path: Path, seed: int, architecture: Any, config: Any) -> Path:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = architecture(config)
    model.to(torch.float32).save_pretrained(path)
    return path


def names(folder: Path) -> list[str]:
    """What lies in a folder."""
    return sorted(path.name for path in folder.iterdir())


def of(tokens: Sequence[Any], **inputs: Any) -> Datum:
    """These tokens with these inputs, as they are."""
    return Datum(ModelInput.from_ints(tokens), inputs)


def datum(tokens: Sequence[int], **inputs: Any) -> Datum:
    """Tokens, of which each is the target of the one before it, without a last target unless `target_tokens` says so."""
    if "target_tokens" in inputs:
        return of(tokens, **inputs)
    return of(tokens[:-1], target_tokens=list(tokens[1:]), **inputs)


def supervised(count: int, *, seed: int = 0) -> list[Datum]:
    """Sequences of several lengths, with weights of several sizes."""
    numbers = random.Random(seed)
    made: list[Datum] = []
    for _ in range(count):
        tokens = [numbers.randrange(VOCABULARY) for _ in range(numbers.randint(3, 12))]
        made.append(datum(tokens, weights=[float(numbers.random() > 0.3) for _ in tokens[1:]]))
    return made


def sampled(count: int, *, seed: int = 0, **more: Any) -> list[Datum]:
    """Sequences of a prompt of 2 tokens and an answer, with the log-probabilities of another policy and advantages."""
    numbers = random.Random(seed)
    made: list[Datum] = []
    for _ in range(count):
        tokens = [numbers.randrange(VOCABULARY) for _ in range(numbers.randint(4, 12))]
        answer = len(tokens) - 2
        logprobs = [0.0] + [-2.0 - numbers.random() for _ in range(answer)]
        advantages = [0.0] + [numbers.choice([-1.0, 0.5])] * answer
        made.append(datum(tokens, logprobs=logprobs, advantages=advantages, **more))
    return made


def pairs(count: int, *, seed: int = 0, **more: Any) -> list[Datum]:
    """Pairs of which the preferred answer has token 5 in it."""
    numbers = random.Random(seed)

    def answer(*wanted: int) -> list[int]:
        rest = [numbers.randrange(6, VOCABULARY) for _ in range(numbers.randint(2, 8))]
        return numbers.sample([*wanted, *rest], len(wanted) + len(rest))

    return [of(answer(5, 5), rejected_tokens=answer(), **more) for _ in range(count)]

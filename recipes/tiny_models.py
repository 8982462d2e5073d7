"""Reward models small enough to be made on the spot: random weights, real architectures, a tokenizer that takes any text.

`python recipes/tiny_models.py DIRECTORY [reward|process|judge …]` writes each to a directory of that name; nothing is downloaded.
`reward:1` is another one, of the seed 1, and goes to `reward-1`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen2ForSequenceClassification,
    Qwen2ForTokenClassification,
    Qwen2Tokenizer,
)
from transformers.utils import logging

STEP_TAG = "<extra_0>"
"""The token at which the process model scores a step."""
_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", STEP_TAG]
_CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_CORPUS = [
    "What is six times seven? The answer is 42.",
    "Let me think: 6 * 7 = 42, so #### 42",
    "Der Fuchs springt über den Zaun.",
]


def tokenizer() -> Any:
    """Return a byte-level BPE with the special tokens and the chat template of Qwen2."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=384, special_tokens=_SPECIAL, initial_alphabet=alphabet, show_progress=False)
    bpe.train_from_iterator(_CORPUS, trainer)
    model = json.loads(bpe.to_str())["model"]
    # The class that AutoTokenizer takes for a Qwen2 model, so that the ids are the same before saving and after loading.
    qwen2: Any = Qwen2Tokenizer  # untyped
    return qwen2(
        vocab=model["vocab"],
        merges=[tuple(pair) for pair in model["merges"]],
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>", STEP_TAG],
        chat_template=_CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=1024,
    )


def reward_model(path: str | Path, *, labels: int = 1, seed: int = 0, hidden: int = 64, layers: int = 2) -> Path:
    """Write a discriminative reward model (Qwen2 with a classification head) and return its directory."""
    return _written(path, seed, lambda: _built(Qwen2ForSequenceClassification, _config(hidden, layers, num_labels=labels)))


def process_model(path: str | Path, *, labels: int = 2, seed: int = 0) -> Path:
    """Write a process reward model: it scores every token, read at `STEP_TAG`; return its directory."""
    return _written(path, seed, lambda: _built(Qwen2ForTokenClassification, _config(64, 2, num_labels=labels)))


def judge(path: str | Path, *, seed: int = 0) -> Path:
    """Write a generative reward model, which babbles unless its output is constrained; return its directory."""
    return _written(path, seed, lambda: _built(Qwen2ForCausalLM, _config(64, 2)))


def _config(hidden: int, layers: int, **more: Any) -> Qwen2Config:
    ids = tokenizer()
    return Qwen2Config(
        vocab_size=len(ids),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 32,  # vLLM on the CPU takes heads whose size is a multiple of 32
        num_key_value_heads=1,
        max_position_embeddings=1024,
        pad_token_id=ids.pad_token_id,
        eos_token_id=ids.eos_token_id,
        bos_token_id=None,
        initializer_range=0.2,  # scores that differ visibly from text to text
        **more,
    )


def _built(architecture: Any, config: Qwen2Config) -> Any:
    return architecture(config)


def _written(path: str | Path, seed: int, build: Callable[[], Any]) -> Path:
    directory = Path(path)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build()
    model.to(torch.float32).save_pretrained(directory)
    tokenizer().save_pretrained(directory)
    return directory


_MAKERS: dict[str, Callable[..., Path]] = {"reward": reward_model, "process": process_model, "judge": judge}

if __name__ == "__main__":
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    target, *names = sys.argv[1:] or sys.exit(__doc__)
    for name in names or _MAKERS:
        kind, _, number = name.partition(":")
        print(_MAKERS[kind](Path(target) / name.replace(":", "-"), seed=int(number or 0)))

"""Language models small enough to be made on the spot and to learn on one core: random weights, one token for each word.

`python -m recipes.tiny_policies DIRECTORY WORD …` writes one; nothing is downloaded.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer
from transformers.utils import logging

PAD, END, BEGIN = "<|endoftext|>", "<|im_end|>", "<|im_start|>"
"""The tokens 0, 1 and 2 of every one; the words have the numbers from 3 on."""


def tokenizer(words: Sequence[str]) -> Any:
    """Return a tokenizer of these words, which other characters are nothing to."""
    qwen2: Any = Qwen2Tokenizer  # untyped; the class that AutoTokenizer takes for a Qwen2 model
    made = qwen2(
        vocab={PAD: 0, END: 1, BEGIN: 2},
        merges=[],
        pad_token=PAD,
        eos_token=END,
        unk_token=None,
        additional_special_tokens=[BEGIN],
        clean_up_tokenization_spaces=False,
        model_max_length=64,
    )
    made.add_tokens(list(words))
    return made


def policy(path: str | Path, words: Sequence[str], *, seed: int = 0) -> Path:
    """Write a Qwen2 of some 80,000 random weights with its tokenizer, and return its directory."""
    words_of = tokenizer(words)
    config = Qwen2Config(
        vocab_size=len(words_of),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,  # of 32 each: vLLM on the CPU takes multiples of it
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=False,
        initializer_range=0.05,  # with 0.02 the same training takes twice as long
        pad_token_id=words_of.pad_token_id,
        eos_token_id=words_of.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        architecture: Any = Qwen2ForCausalLM  # untyped
        architecture(config).save_pretrained(path)
    words_of.save_pretrained(path)
    return Path(path)


if __name__ == "__main__":
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    target, *given = sys.argv[1:] or sys.exit(__doc__)
    print(policy(target, given))

"""A policy small enough to be trained in a test: a Qwen2 of 16 tokens and 76 thousand random weights, without an end token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

VOCABULARY = 16
CONTEXT = 64


def tiny_policy(directory: Path, *, seed: int = 0, **config: Any) -> str:
    """Write it to a directory, whose name is returned."""
    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": False,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        architecture: Any = Qwen2ForCausalLM  # untyped
        model = architecture(Qwen2Config(**settings | config))
    model.save_pretrained(directory)
    return str(directory)

"""The reward model without servers: a reward function that loads it once and scores one conversation at a time."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer


def compute_score(solution_str: str, raw_prompt: Sequence[dict[str, str]], model_path: str) -> float:
    """Return the reward model's score of prompt and answer; `model_path` is one of `reward_kwargs`."""
    tokenizer, model = _loaded(model_path)
    messages = [*raw_prompt, {"role": "assistant", "content": solution_str}]
    ids = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=False)
    with torch.inference_mode():
        return float(model(torch.tensor([ids])).logits[0, 0])


@functools.cache
def _loaded(path: str) -> tuple[Any, Any]:
    return AutoTokenizer.from_pretrained(path), AutoModelForSequenceClassification.from_pretrained(path).eval()

"""The tokenizer that belongs to a model."""

from __future__ import annotations

import functools
from typing import Any

from transformers import AutoTokenizer

from reward_loop.errors import RequestFailedError


@functools.cache
def read_tokenizer(base_model: str, *, trust_remote_code: bool = False) -> Any:
    """Load it, once per process. Raises RequestFailedError("user") where the model has none."""
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(base_model, trust_remote_code=trust_remote_code)
    except (OSError, ValueError, KeyError) as error:
        raise RequestFailedError(f"{base_model} has no tokenizer: {error}", category="user") from error
    # Where there are no files, transformers makes up an empty one, to which every text is nothing.
    if set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise RequestFailedError(
            f"{base_model} has no tokenizer; put its files beside the model, or work with tokens", category="user"
        )
    return tokenizer

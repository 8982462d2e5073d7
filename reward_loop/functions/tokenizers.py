"""Loading tokenizers that settings name."""

from __future__ import annotations

from typing import Any

from reward_loop.errors import ConfigError


def load_tokenizer(path: str | None, trust_remote_code: bool) -> Any:
    """Return the tokenizer at `path` (None for None); ConfigError if it can't be loaded."""
    if path is None:
        return None
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(path, trust_remote_code=trust_remote_code)
    except Exception as error:  # transformers and the hub raise many kinds, and all mean the same here
        raise ConfigError(f"no tokenizer could be loaded from {path!r}: {type(error).__name__}: {error}") from error

"""What is known of a model before its weights are loaded: its vocabulary, its context and its end tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from transformers import AutoConfig, GenerationConfig

from reward_loop.errors import RequestFailedError


@dataclass(frozen=True, slots=True)
class ModelProfile:
    """What a call is checked against."""

    name: str
    vocabulary: int
    """Token ids are below this."""
    context: int | None
    """How many tokens prompt and answer may have together; None: the configuration does not say."""
    end_tokens: frozenset[int]
    """What ends a sequence where the call does not say."""


def read_profile(base_model: str, *, trust_remote_code: bool = False) -> ModelProfile:
    """Read the configuration of a model. Raises RequestFailedError("user") where there is none."""
    loader: Any = AutoConfig
    try:
        config = loader.from_pretrained(base_model, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        raise RequestFailedError(f"base model {base_model!r} can't be read: {error}", category="user") from error
    text = config.get_text_config()
    context = getattr(text, "max_position_embeddings", None)
    return ModelProfile(base_model, int(text.vocab_size), context, _end_tokens(base_model, text))


def _end_tokens(base_model: str, config: Any) -> frozenset[int]:
    loader: Any = GenerationConfig
    try:
        end = loader.from_pretrained(base_model).eos_token_id
    except OSError:  # no generation_config.json
        end = None
    end = config.eos_token_id if end is None else end
    return frozenset(end if isinstance(end, list) else [] if end is None else [end])

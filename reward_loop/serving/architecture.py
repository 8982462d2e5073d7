"""What vLLM would make of a model's architecture, and the token of its step tag.

Invariant: only configurations and tokenizers are read, never weights; code that comes with a model runs only where
`trust_remote_code` allows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reward_loop.errors import ConfigError
from reward_loop.scoring.model_kind import ResolvedKind, kind_of, read_model_config


def architecture_of(path: str, *, trust_remote_code: bool = False) -> str:
    """Return the first architecture that the model's config.json names; ConfigError if there is none."""
    architectures = read_model_config(path, trust_remote_code=trust_remote_code).get("architectures") or []
    if not architectures:
        raise ConfigError(f"the config.json of the reward model {path} names no architecture; add it there")
    return str(architectures[0])


def check_kind(path: str, architecture: str, kind: ResolvedKind, engine_kwargs: Mapping[str, Any]) -> None:
    """Raise ConfigError where the engine would serve the architecture as `kind`, but give nonsense."""
    converted = any(name.replace("-", "_") in ("convert", "hf_overrides", "runner") for name in engine_kwargs)
    if converted:
        return
    try:
        natural = kind_of([architecture])
    except ConfigError:  # unknown to us, and perhaps not to vLLM
        return
    if natural == "generative" and kind != "generative":
        # vLLM's own conversion puts a head of uninitialised weights on it, and says nothing.
        raise ConfigError(
            f"the reward model {path} is a {architecture}, which has no head that scores, but its kind is {kind}: "
            "set kind=generative, or say where its head comes from with rollout.engine_kwargs {convert, hf_overrides}"
        )
    if natural in ("discriminative", "process") and kind == "generative":
        raise ConfigError(f"the reward model {path} is a {architecture}, which writes no text: set its kind to {natural} or auto")


def scores_tokens_only(architecture: str) -> bool:
    """Whether vLLM gives this architecture no score per sequence: the last token's takes its place."""
    return "ForRewardModel" in architecture


def step_tag_id(tokenizer_path: str, tag: str, *, trust_remote_code: bool = False) -> int:
    """Return the id of the one token that marks the end of a step; ConfigError if the tag is not exactly one token."""
    from transformers import AutoTokenizer  # here: seconds to import, and only process models need it

    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(tokenizer_path, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"the reward model's tokenizer {tokenizer_path} can't be loaded: {error}; set tokenizer_path"
        ) from error
    ids = tokenizer.encode(tag, add_special_tokens=False)
    if len(ids) != 1:
        raise ConfigError(f"scoring.step_tag={tag!r} is {len(ids)} tokens of {tokenizer_path}; it must be exactly one")
    return int(ids[0])

"""What a model gives, read from its configuration: a score, a score per step, or text.

Invariant: nothing is loaded or downloaded but `config.json`, and a local directory costs no import.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from reward_loop.config_serving import ModelKind
from reward_loop.errors import ConfigError

ResolvedKind = Literal["discriminative", "process", "generative"]

DEFAULT_STEP_TAG = "<extra_0>"
"""The step tag of Qwen2.5-Math-PRM, and of a process model that is configured without one."""

# The first part of a name that is found decides, so ForProcessRewardModel comes before Reward.
_KINDS: tuple[tuple[str, ResolvedKind], ...] = (
    ("ForProcessRewardModel", "process"),
    ("ForTokenClassification", "process"),
    ("ForSequenceClassification", "discriminative"),
    ("Reward", "discriminative"),
    ("ForCausalLM", "generative"),
    ("ForConditionalGeneration", "generative"),
    ("LMHeadModel", "generative"),
)
_LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length", "max_seq_length")


def kind_of(architectures: Sequence[str]) -> ResolvedKind:
    """Return what a model of these architectures gives; ConfigError where their names don't tell."""
    for name in architectures:
        for part, kind in _KINDS:
            if part in name:
                return kind
    raise ConfigError(
        f"the model's architectures {list(architectures)} don't say what it gives; set kind (reward_model.model.kind, or of the "
        "entry of reward_model.models) to discriminative, process or generative"
    )


def resolve_kind(kind: ModelKind, path: str) -> ResolvedKind:
    """Return `kind`, or what the configuration of the model at `path` says where it is "auto"."""
    return kind_of(read_model_config(path).get("architectures") or ()) if kind == "auto" else kind


def read_model_config(path: str, *, trust_remote_code: bool = False) -> Mapping[str, Any]:
    """Return the `config.json` of a directory or of a Hugging Face model; ConfigError where there is none to be read."""
    directory = Path(path).expanduser()
    if not directory.is_dir():
        return _of_the_hub(path, trust_remote_code)
    try:
        found: Any = json.loads((directory / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"the model in {path!r} has no config.json that can be read: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"{directory / 'config.json'} must hold an object; it holds a {type(found).__name__}")
    return found


def context_length(config: Mapping[str, Any]) -> int | None:
    """Return the most tokens that a model of this configuration takes; None where it doesn't say."""
    text = config.get("text_config") or config
    given = [text[key] for key in _LENGTHS if isinstance(text.get(key), int)]
    return min(given, default=None)


def _of_the_hub(path: str, trust_remote_code: bool) -> Mapping[str, Any]:
    from transformers import PretrainedConfig

    try:
        config, _ = PretrainedConfig.get_config_dict(path, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        raise ConfigError(f"no model configuration could be read from {path!r}: {error}") from error
    if not config:
        raise ConfigError(f"no model configuration could be read from {path!r}; it is neither a directory nor a known model")
    return config

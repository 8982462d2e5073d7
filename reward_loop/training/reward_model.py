"""Reward models in training: a body, and a head that computes in float32 whatever the body's type.

Invariants: the head's weights are float32 in memory and in files; what is saved is a plain model that transformers and vLLM load.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from torch import nn

from reward_loop.errors import TrainingError
from reward_loop.sync.key_names import HEADS
from reward_loop.sync.lora import merged_state_dict

BodyType: TypeAlias = Literal["float32", "bfloat16"]


def load_reward_model(
    path: str | Path,
    *,
    labels: int | None = None,
    dtype: BodyType = "float32",
    pad_token_id: int | None = None,
    seed: int = 0,
    trust_remote_code: bool = False,
) -> nn.Module:
    """Load a reward model, or a language model that gets a new head of `labels` (1 if not given), drawn from `seed`.

    Raises TrainingError for what can't be loaded, for a head of other labels than asked for, and without a padding token: give
    its id where the model's configuration does not.
    """
    from transformers import AutoConfig, AutoModelForSequenceClassification

    source = str(path)
    try:
        config: Any = AutoConfig.from_pretrained(source, trust_remote_code=trust_remote_code)
        has_head = any(name.endswith("ForSequenceClassification") for name in config.architectures or [])
        if not has_head or labels is not None:
            config.num_labels = labels or 1
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model: nn.Module = AutoModelForSequenceClassification.from_pretrained(
                source, config=config, dtype=getattr(torch, dtype), trust_remote_code=trust_remote_code
            )
    except (OSError, ValueError, RuntimeError) as error:  # RuntimeError: a head of another shape
        raise TrainingError(f"{source} can't be loaded as a reward model of {labels or 'its'} labels: {error}") from error
    return with_float32_head(model, pad_token_id, _saved_head(source, head_name(model)) if has_head else None)


def new_reward_model(config: Any, *, pad_token_id: int | None = None, seed: int = 0) -> nn.Module:
    """Build a model of a transformers configuration with random float32 weights; raises TrainingError as `load_reward_model`."""
    from transformers import AutoModelForSequenceClassification

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        build: Any = AutoModelForSequenceClassification.from_config  # untyped
        model: nn.Module = build(config, dtype=torch.float32)
    return with_float32_head(model, pad_token_id)


def with_float32_head(
    model: nn.Module, pad_token_id: int | None = None, saved: dict[str, torch.Tensor] | None = None
) -> nn.Module:
    """Make the head compute in float32 (with the weights `saved`, if given) and set the padding token; return the same model."""
    config: Any = model.config
    text = config.get_text_config()
    if pad_token_id is not None:
        text.pad_token_id = pad_token_id
    if text.pad_token_id is None:
        raise TrainingError(
            f"{config.model_type} names no padding token, and scores of padded batches need one: give pad_token_id"
        )
    if not 0 <= text.pad_token_id < text.vocab_size:
        raise TrainingError(f"pad_token_id={text.pad_token_id} is none of the {text.vocab_size} tokens of the model")
    head: nn.Module = getattr(model, head_name(model))
    head.float()
    if saved:
        head.load_state_dict(saved)
    head.register_forward_pre_hook(_in_own_type)
    return model


def head_name(model: nn.Module) -> str:
    """Return the attribute of a plain model (no PEFT around it) that is its head; TrainingError if it has none."""
    for name in HEADS:
        if isinstance(getattr(model, name, None), nn.Module):
            return name
    raise TrainingError(f"{type(model).__name__} has no head; one of these was expected: {', '.join(HEADS)}")


def plain_model(model: nn.Module) -> nn.Module:
    """Return the transformers model inside of PEFT's; any other model as it is."""
    inner: Any = getattr(model, "get_base_model", None)
    return model if inner is None else inner()


def label_count(model: nn.Module) -> int:
    """Return how many labels the head has."""
    config: Any = plain_model(model).config
    return int(config.num_labels)


def save_reward_model(model: nn.Module, directory: str | Path, tokenizer: Any = None) -> Path:
    """Write a plain checkpoint for transformers and vLLM, adapters merged, and the tokenizer beside it; return its directory."""
    directory = Path(directory)
    adapted = hasattr(model, "get_base_model")
    plain: Any = plain_model(model)
    if adapted:
        plain.save_pretrained(directory, state_dict=merged_state_dict(model), save_peft_format=False)
    else:
        plain.save_pretrained(directory)
    if tokenizer is not None:
        tokenizer.save_pretrained(directory)
    return directory


def _in_own_type(head: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    dtype = next(head.parameters()).dtype
    return tuple(value.to(dtype) for value in inputs)


def _saved_head(source: str, head: str) -> dict[str, torch.Tensor]:
    """Return the head's weights as the files hold them: transformers rounds them to the body's type when it loads them."""
    from safetensors import safe_open
    from transformers.utils.hub import cached_file

    folder = Path(source) if Path(source).is_dir() else Path(str(cached_file(source, "config.json"))).parent
    found = dict[str, torch.Tensor]()
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            names = [name for name in tensors.keys() if name.startswith(f"{head}.")]  # noqa: SIM118 (it is no mapping)
            found |= {name.removeprefix(f"{head}."): tensors.get_tensor(name).float() for name in names}
    return found

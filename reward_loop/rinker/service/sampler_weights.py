"""Weights as a directory that transformers and vLLM load: the whole model, its configuration and its tokenizer."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from transformers import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, AutoConfig, AutoTokenizer, GenerationConfig

from reward_loop.rinker.learner import Weights
from reward_loop.rinker.types import ModelSpec


def write_sampler_weights(weights: Weights, spec: ModelSpec, directory: Path, *, trust_remote_code: bool = False) -> None:
    """Write the weights with what else belongs to the base model, where it has that; OSError where the disk is full."""
    directory.mkdir(parents=True)
    try:
        save_file(_each_once(weights), directory / "model.safetensors", metadata={"format": "pt"})
    except SafetensorError as error:
        raise OSError(str(error)) from error
    config: Any = AutoConfig.from_pretrained(spec.base_model, trust_remote_code=trust_remote_code)
    tokenizer = _found(AutoTokenizer, spec.base_model, trust_remote_code=trust_remote_code)
    if spec.kind == "seq_cls":
        _score(config, spec.num_labels, tokenizer)
    for one in (config, tokenizer, _found(GenerationConfig, spec.base_model)):
        if one is not None:
            one.save_pretrained(directory)
    if trust_remote_code:
        for code in Path(spec.base_model).glob("*.py"):  # of a model of the hub, the configuration says where its code is
            shutil.copy(code, directory)


def _score(config: Any, labels: int, tokenizer: Any) -> None:
    """Have a configuration say what a reward model on it is, for that of the base model may be a language model's."""
    own = (getattr(config, "auto_map", None) or {}).get("AutoModelForSequenceClassification")  # of a model with its own code
    scorers: Any = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING
    config.architectures = [own.rpartition(".")[2] if own else scorers[type(config)].__name__]
    config.num_labels = labels
    text = config.get_text_config()
    if text.pad_token_id is None and tokenizer is not None:
        text.pad_token_id = tokenizer.pad_token_id


def _found(loader: Any, base_model: str, **options: bool) -> Any:
    """Return what a model may have of its own, and is none the worse without."""
    try:
        return loader.from_pretrained(base_model, **options)
    except (OSError, ValueError, KeyError):
        return None


def _each_once(weights: Weights) -> dict[str, torch.Tensor]:
    """Keep one name of tensors that share their memory, as safetensors asks; loading ties them again."""
    seen: set[int] = set()
    kept: dict[str, torch.Tensor] = {}
    for name, tensor in weights.items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            kept[name] = tensor.contiguous()
    return kept

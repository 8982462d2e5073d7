"""Weights as a directory that transformers and vLLM load: the whole model, its configuration and its tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from reward_loop.rinker.learner import Weights


def write_sampler_weights(weights: Weights, base_model: str, directory: Path) -> None:
    """Write the weights with what else belongs to the base model, where it has that."""
    directory.mkdir(parents=True)
    save_file(_each_once(weights), directory / "model.safetensors", metadata={"format": "pt"})
    loaders: list[Any] = [AutoConfig, GenerationConfig, AutoTokenizer]
    for loader in loaders:
        try:
            found = loader.from_pretrained(base_model)
        except (OSError, ValueError, KeyError):
            if loader is AutoConfig:
                raise
            continue  # a model without a tokenizer or settings of its own is none the worse for it
        found.save_pretrained(directory)


def _each_once(weights: Weights) -> dict[str, torch.Tensor]:
    """Keep one name of tensors that share their memory, as safetensors asks; loading ties them again."""
    seen: set[int] = set()
    kept: dict[str, torch.Tensor] = {}
    for name, tensor in weights.items():
        if tensor.data_ptr() not in seen:
            seen.add(tensor.data_ptr())
            kept[name] = tensor.contiguous()
    return kept

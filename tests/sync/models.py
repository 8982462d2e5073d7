"""Small reward models of the tests here: real architectures, random weights, in memory."""

from __future__ import annotations

from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen2Config, Qwen2ForSequenceClassification

PROMPTS = [[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 2, 8]]


def tiny_config(**more: Any) -> Qwen2Config:
    """Return the configuration of a model with two layers and some 10 000 weights."""
    sizes: dict[str, Any] = {
        "vocab_size": 32,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
    }
    options: dict[str, Any] = sizes | {"num_key_value_heads": 1, "num_labels": 1, "pad_token_id": 0, "initializer_range": 0.2}
    return Qwen2Config(**(options | more))


def plain_model(seed: int = 0, **more: Any) -> Any:
    """Return a reward model in evaluation mode, the same for the same seed."""
    build: Any = Qwen2ForSequenceClassification  # untyped
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build(tiny_config(**more)).eval()


def adapted_model(*, dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    """Return the reward model with adapters of PEFT that change it, and everything trainable moved a little."""
    config: dict[str, Any] = {
        "r": 4,
        "lora_alpha": 8,
        "target_modules": ["q_proj", "down_proj"],
        "modules_to_save": ["score"],
    } | options
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = get_peft_model(plain_model().to(dtype), LoraConfig(**config)).eval()
        shake(model)
    return model


@torch.no_grad()
def shake(model: torch.nn.Module) -> None:
    """Move everything trainable a little, as training does."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.add_(0.1 * torch.randn_like(parameter))


@torch.no_grad()
def scores(model: Any) -> torch.Tensor:
    """Return what a reward model says to PROMPTS, in float32."""
    logits: torch.Tensor = model(input_ids=torch.tensor(PROMPTS)).logits
    return logits.float()

"""What each training mode trains: the head alone, adapters and the head, or everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_never

import torch
from torch import nn

from reward_loop.errors import TrainingError
from reward_loop.sync.training_mode import RewardModelTrainingMode
from reward_loop.training.reward_model import head_name


@dataclass(frozen=True, slots=True)
class LoraSettings:
    """Adapters of arXiv:2106.09685: W' = W + (alpha / r) B A."""

    r: int = 8
    alpha: float = 16.0
    dropout: float = 0.0
    target_modules: str | tuple[str, ...] = "all-linear"
    """Names of modules; "all-linear" is every linear layer of the body."""
    rank_stabilised: bool = False
    """Scale by alpha / sqrt(r) instead (arXiv:2312.03732)."""
    seed: int = 0
    """Of the adapters' first weights."""


def trained_by(model: nn.Module, mode: RewardModelTrainingMode, lora: LoraSettings | None = None) -> nn.Module:
    """Freeze what the mode does not train; return the model to train, which is a PEFT model around the given one for LORA.

    Raises TrainingError for LoRA without peft, and for settings that it refuses.
    """
    match mode:
        case RewardModelTrainingMode.FULL:
            return model.requires_grad_(True)
        case RewardModelTrainingMode.HEAD_ONLY:
            model.requires_grad_(False)
            head: nn.Module = getattr(model, head_name(model))
            head.requires_grad_(True)
            return model
        case RewardModelTrainingMode.LORA:
            return _adapted(model, lora or LoraSettings())
        case _:
            assert_never(mode)


def trained_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Return what is trained, by name; TrainingError if all of it is frozen."""
    found = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    if not found:
        raise TrainingError(f"nothing of this {type(model).__name__} is trained: every parameter is frozen; see trained_by")
    return found


def _adapted(model: nn.Module, lora: LoraSettings) -> nn.Module:
    try:
        from peft import LoraConfig, TaskType, get_peft_model
    except ImportError as error:
        raise TrainingError(f"LoRA needs peft ({error}): pip install 'reward-loop[train]'") from error
    targets = lora.target_modules if isinstance(lora.target_modules, str) else list(lora.target_modules)
    config = LoraConfig(
        task_type=TaskType.SEQ_CLS,
        r=lora.r,
        lora_alpha=lora.alpha,  # type: ignore[arg-type]  # peft multiplies by it; a fraction is fine
        lora_dropout=lora.dropout,
        target_modules=targets,
        use_rslora=lora.rank_stabilised,
        modules_to_save=[head_name(model)],
    )
    plain: Any = model
    device = next(model.parameters()).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(lora.seed)
        try:
            adapted: nn.Module = get_peft_model(plain, config)
        except ValueError as error:
            raise TrainingError(f"peft refuses {lora}: {error}") from error
    return adapted

"""An adapter as PEFT's files: adapter_config.json and adapter_model.safetensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from reward_loop.errors import WeightSyncError


def write_adapter(model: nn.Module, adapter: str | None, directory: Path) -> None:
    """Write an adapter of a PEFT model, with the modules that it brought of its own (`adapter` None: the active one).

    Raises WeightSyncError for a model without adapters, where it isn't clear which one is meant, and for tensors that no server
    takes: shards, and values that aren't finite.
    """
    configs: dict[str, Any] = getattr(model, "peft_config", {})
    active: list[str] = list(getattr(model, "active_adapters", ())) if configs else []
    name = active[0] if adapter is None and len(active) == 1 else adapter
    if name is None or name not in configs:
        raise WeightSyncError(
            f"{type(model).__name__} has the adapters {sorted(configs)} (active: {active}); give one as adapter, not {adapter!r}"
        )
    from peft import get_peft_model_state_dict

    tensors: dict[str, torch.Tensor] = get_peft_model_state_dict(model, adapter_name=name, save_embedding_layers=False)
    for key, value in tensors.items():
        if hasattr(value, "__tensor_flatten__"):
            raise WeightSyncError(
                f"{key} is in parts ({type(value).__name__}); merge and publish the model (sync.lora), or gather it"
            )
        if not torch.isfinite(value).all():
            raise WeightSyncError(
                f"{key} of the adapter {name} holds NaN or infinity, and a server would load that; not published"
            )
    save_file({key: value.detach().cpu().clone() for key, value in tensors.items()}, directory / "adapter_model.safetensors")
    configs[name].save_pretrained(str(directory))

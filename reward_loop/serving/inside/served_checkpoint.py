"""The checkpoint that a server was started with: what it holds, and its weights again."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import torch
from vllm.model_executor.model_loader import get_model_loader

from reward_loop.errors import WeightSyncError
from reward_loop.serving.inside.known_weights import KnownWeight, KnownWeights
from reward_loop.serving.inside.staged_file import Weights


def checkpoint_weights(vllm_config: Any, model: torch.nn.Module, names: Collection[str] | None = None) -> Weights:
    """Yield the checkpoint's weights (None: all), each mapped from its file where the format allows; raises WeightSyncError."""
    lazily: dict[str, Any] = {"use_tqdm_on_load": False}
    if vllm_config.load_config.load_format in ("auto", "hf", "safetensors"):
        lazily["safetensors_load_strategy"] = "lazy"
    loader: Any = get_model_loader(dataclasses.replace(vllm_config.load_config, **lazily))
    if not hasattr(loader, "get_all_weights"):
        kind = vllm_config.load_config.load_format
        raise WeightSyncError(
            f"load_format={kind} can't read a checkpoint again, to compare an update with: start with another one"
        )
    for name, weight in loader.get_all_weights(vllm_config.model_config, model):
        if names is None or name in names:
            yield name, weight


def known_weights(vllm_config: Any, model: torch.nn.Module) -> KnownWeights:
    """Return what the model takes. Reads headers only where the checkpoint is of safetensors files, else all of it."""
    found = {
        name: KnownWeight(str(weight.dtype).removeprefix("torch."), tuple(weight.shape))
        for name, weight in checkpoint_weights(vllm_config, model)
    }
    config = vllm_config.model_config.hf_config.get_text_config()
    tied = {"lm_head.weight"} if getattr(config, "tie_word_embeddings", False) else set[str]()
    computed = {name for name in found if name.endswith(".rotary_emb.inv_freq")}
    return KnownWeights(found, _fused(model), frozenset(tied | computed))


def _fused(model: torch.nn.Module) -> dict[str, Sequence[str]]:
    """Return the members of each matrix that vLLM computes as one, by its name."""
    fused = defaultdict[str, Sequence[str]](tuple)
    fused.update({whole: tuple(members) for whole, members in getattr(model, "packed_modules_mapping", {}).items()})
    stacked = getattr(getattr(model, "hf_to_vllm_mapper", None), "orig_to_new_stacked", {})
    for member, (whole, _) in stacked.items():
        name = whole.strip(".")
        fused[name] = tuple(dict.fromkeys((*fused[name], member.strip("."))))
    return dict(fused)

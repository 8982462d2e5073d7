"""What a checkpoint must have in common with the model that goes on from it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import nn

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.types import LoraConfig, ModelSpec

_SAMPLED = 8


def model_digest(model: nn.Module) -> str:
    """Return what changes with the shape of the model and, by a sample of each frozen weight, with what it is trained on.

    To be taken before the model is sharded.
    """
    digest = hashlib.sha256()
    for name, value in model.named_parameters():
        sample = [] if value.requires_grad else value.detach().flatten()[:_SAMPLED].float().tolist()
        digest.update(f"{name} {tuple(value.shape)} {sample}\n".encode())
    return digest.hexdigest()[:16]


def what_decides(spec: ModelSpec) -> Mapping[str, Any]:
    """Return what of a spec must be the same: all but where the model lies, and what only its first values depend on."""
    lora = spec.lora
    return {
        "kind": spec.kind,
        "num_labels": spec.num_labels if spec.kind == "seq_cls" else None,
        "lora.rank": lora and lora.rank,
        "lora.alpha": lora and lora.alpha,
        "lora.train_attn": lora and lora.train_attn,
        "lora.train_mlp": lora and lora.train_mlp,
        "lora.train_unembed": lora and lora.train_unembed,
    }


def spec_as_json(spec: ModelSpec) -> dict[str, Any]:
    """Return a spec as plain values."""
    return asdict(spec)


def spec_from_json(values: Mapping[str, Any]) -> ModelSpec:
    """Return the spec that `spec_as_json` made into these values; RequestFailedError ("server") for anything else."""
    try:
        plain: dict[str, Any] = dict(values)
        lora = plain.pop("lora")
        return ModelSpec(**plain, lora=None if lora is None else LoraConfig(**lora))
    except (KeyError, TypeError) as error:
        raise RequestFailedError(f"{values!r:.200} is no spec of a model: {error}", category="server") from error

"""Which model is trained, and what of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ModelKind = Literal["causal_lm", "seq_cls"]


@dataclass(frozen=True, slots=True)
class LoraConfig:
    """Low-rank adapters, of which layers, and what their first values are drawn with."""

    rank: int = 32
    seed: int | None = None
    train_unembed: bool = True
    train_mlp: bool = True
    train_attn: bool = True
    alpha: float = 32.0


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model to be trained: `base_model` is a directory or a name of the Hugging Face hub."""

    base_model: str
    kind: ModelKind = "causal_lm"
    """causal_lm: a language model; seq_cls: a reward model, with a head of `num_labels` scores."""
    lora: LoraConfig | None = None
    """None: all weights are trained."""
    num_labels: int = 1
    seed: int | None = None
    """Of what is drawn when a head is new."""

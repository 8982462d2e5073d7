"""What a service says of itself and of its models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelData:
    """The base model of a model in training."""

    model_name: str
    tokenizer_id: str


@dataclass(frozen=True, slots=True)
class GetInfoResponse:
    """A model in training."""

    model_id: str
    model_data: ModelData
    is_lora: bool
    lora_rank: int | None = None


@dataclass(frozen=True, slots=True)
class SupportedModel:
    """A base model that a service offers."""

    model_name: str
    max_context_length: int | None = None
    trainable: bool = True
    sampleable: bool = True


@dataclass(frozen=True, slots=True)
class GetServerCapabilitiesResponse:
    """What a service offers."""

    supported_models: Sequence[SupportedModel]

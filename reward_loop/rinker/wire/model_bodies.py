"""Bodies about models: to make one, to step it, to save it and to load it.

They are those of the Tinker SDK; a few more fields say what the SDK has no words for (`kind`, `num_labels`, `seed`, and `alpha`
of the adapters).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from reward_loop.rinker.backend import SamplerKind
from reward_loop.rinker.types import AdamParams, LoraConfig, ModelSpec
from reward_loop.rinker.types.model_spec import ModelKind
from reward_loop.rinker.wire.body import Name, Number, OpenBody, Request, SeqId

Metadata = dict[str, Any]


class Place(OpenBody):
    """Which model is asked, and when: can be read from bodies whose other fields are wrong."""

    model_id: Name
    seq_id: SeqId


class ModelBody(OpenBody):
    """Names a model."""

    model_id: Name


class OptimizerConfig(OpenBody):
    """Which optimiser steps a model: there is one."""

    type: Literal["adamw"] = "adamw"


class CreateModel(Request):
    """Asks for a new model; see ModelSpec."""

    session_id: Name
    model_seq_id: Number
    base_model: Name
    user_metadata: Metadata | None = None
    lora_config: LoraConfig | None = None
    optimizer_config: OptimizerConfig = OptimizerConfig()
    kind: ModelKind = "causal_lm"
    num_labels: int = 1
    seed: int | None = None

    @classmethod
    def of(cls, session_id: str, model_seq_id: int, spec: ModelSpec, metadata: Mapping[str, Any] | None) -> Self:
        """Return the body that asks for what `spec` says. Raises DataError."""
        return cls.made(
            session_id=session_id,
            model_seq_id=model_seq_id,
            base_model=spec.base_model,
            user_metadata=None if metadata is None else dict(metadata),
            lora_config=spec.lora,
            kind=spec.kind,
            num_labels=spec.num_labels,
            seed=spec.seed,
        )

    def spec(self) -> ModelSpec:
        """Return which model is asked for."""
        return ModelSpec(self.base_model, self.kind, self.lora_config, self.num_labels, self.seed)


class OptimStep(Request):
    """Asks for a step of the optimiser."""

    model_id: Name
    seq_id: SeqId
    adam_params: AdamParams


class SaveWeights(Request):
    """Asks to keep weights and optimiser under the name `path`."""

    model_id: Name
    seq_id: SeqId
    path: Name
    overwrite: bool = False
    ttl_seconds: int | None = None
    user_metadata: dict[str, str] | None = None


class SaveWeightsForSampler(Request):
    """Asks to keep the weights under the name `path`, or (without one) for one sampling session."""

    model_id: Name
    seq_id: SeqId
    path: Name | None = None
    sampling_session_seq_id: Number | None = None
    kind: SamplerKind = "snapshot"
    ttl_seconds: int | None = None
    user_metadata: dict[str, str] | None = None


class LoadWeights(Request):
    """Asks a model to go on from what was saved."""

    model_id: Name
    seq_id: SeqId
    path: Name
    optimizer: bool
    optimizer_config: OptimizerConfig | None = None
    weights_access_token: None = None


class CreateFromWeights(Request):
    """Asks for a new model that goes on from what was saved."""

    session_id: Name
    model_seq_id: Number
    path: Name
    optimizer: bool
    base_model: Name | None = None
    user_metadata: Metadata | None = None
    optimizer_config: OptimizerConfig | None = None
    weights_access_token: None = None


class WeightsInfo(Request):
    """Asks what was saved."""

    tinker_path: Name

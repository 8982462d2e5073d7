"""What a training client's calls give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from reward_loop.rinker.types.tensor_data import TensorData


@dataclass(frozen=True, slots=True)
class ForwardBackwardOutput:
    """`loss_fn_outputs` are in the order of the data; the name of a metric says behind a colon how those of parts are joined."""

    loss_fn_output_type: str
    loss_fn_outputs: Sequence[Mapping[str, TensorData]]
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OptimStepResponse:
    """What an optimiser step says of itself."""

    metrics: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class SaveWeightsResponse:
    """Where something was saved: `tinker://MODEL/weights/NAME` or `tinker://MODEL/sampler_weights/NAME`."""

    path: str


@dataclass(frozen=True, slots=True)
class LoadWeightsResponse:
    """What was loaded."""

    path: str | None = None

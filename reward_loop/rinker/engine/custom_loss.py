"""Losses of the user's own, of log-probabilities alone: what a client computes between a forward and a forward_backward.

The gradient of any loss C of log-probabilities is that of the linear loss -Σ w · log p with w = -dC/dlog p. So a client asks for
the log-probabilities (`forward_data`), differentiates C by them (`linearised`) and sends cross_entropy with these weights. The
gradient is exact, and the model's weights see nothing else of C.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import torch

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.types import Datum, ForwardBackwardOutput, TensorData

CustomLossFn: TypeAlias = Callable[[list[Datum], list[torch.Tensor]], tuple[torch.Tensor, Mapping[str, float]]]
"""Data and their log-probabilities, which require gradients -> a scalar loss, and metrics."""

SURROGATE = "cross_entropy"
"""The loss that both calls of the client are made with."""

_INDEPENDENT = "the custom loss does not depend on the log-probabilities that it was given; compute it from them"


@dataclass(frozen=True, slots=True)
class Linearised:
    """What takes the place of a custom loss in the call that makes its gradient."""

    data: Sequence[Datum]
    """For `cross_entropy`, with -dC/dlog p as weights."""
    loss: float
    metrics: Mapping[str, float]

    def output(self, backward: ForwardBackwardOutput) -> ForwardBackwardOutput:
        """Return the result of that call as one of the custom loss: its value, its metrics, and `surrogate_loss:sum`."""
        own = {"loss:sum": self.loss, "surrogate_loss:sum": backward.metrics["loss:sum"]}
        return ForwardBackwardOutput(
            backward.loss_fn_output_type, backward.loss_fn_outputs, {**backward.metrics, **self.metrics, **own}
        )


def forward_data(data: Sequence[Datum]) -> list[Datum]:
    """Return the data for the forward call: what a custom loss reads beside log-probabilities stays with the client.

    Raises RequestFailedError ("user") for a datum without target_tokens.
    """
    return [_with_weights(index, datum, datum.loss_fn_inputs.get("weights")) for index, datum in enumerate(data)]


def linearised(data: Sequence[Datum], outputs: Sequence[Mapping[str, TensorData]], fn: CustomLossFn) -> Linearised:
    """Call the loss with the log-probabilities in `outputs` and differentiate it by them.

    What `fn` raises is passed on. Raises RequestFailedError ("user") for a loss that is no scalar, does not depend on them, or is
    not finite.
    """
    logprobs = [output["logprobs"].to_torch().requires_grad_(True) for output in outputs]
    loss, metrics = _called(fn, list(data), logprobs)
    gradients = cast("Sequence[torch.Tensor | None]", torch.autograd.grad(loss, logprobs, allow_unused=True))
    if all(gradient is None for gradient in gradients):
        raise _refusal(_INDEPENDENT)
    weights: list[TensorData] = []
    for index, (gradient, logprob) in enumerate(zip(gradients, logprobs, strict=True)):
        # A sequence that the loss does not look at has no part in its gradient.
        wanted = torch.zeros_like(logprob) if gradient is None else -gradient
        if not wanted.isfinite().all():
            raise _refusal(f"the custom loss is finite and its gradient by the log-probabilities of data[{index}] is not")
        weights.append(TensorData.from_torch(wanted))
    made = [_with_weights(index, datum, weight) for index, (datum, weight) in enumerate(zip(data, weights, strict=True))]
    return Linearised(made, loss.item(), metrics)


def _called(fn: CustomLossFn, data: list[Datum], logprobs: list[torch.Tensor]) -> tuple[torch.Tensor, Mapping[str, float]]:
    returned: Any = fn(data, logprobs)
    if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Mapping)):
        raise _refusal(f"a custom loss must return (loss, metrics), a tensor and a dict; it returned {returned!r:.120}")
    loss, metrics = returned
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        raise _refusal(f"a custom loss must be a tensor of one number; it is {loss!r:.120}")
    if not loss.requires_grad:
        raise _refusal(_INDEPENDENT)
    if not math.isfinite(loss.item()):
        raise _refusal(f"the custom loss is {loss.item()}")
    return loss.reshape(()), {name: float(value) for name, value in metrics.items()}


def _with_weights(index: int, datum: Datum, weights: TensorData | None) -> Datum:
    targets = datum.loss_fn_inputs.get("target_tokens")
    if targets is None:
        raise _refusal(f"data[{index}].loss_fn_inputs lacks target_tokens, of which a custom loss gets the log-probabilities")
    none = TensorData([0.0] * math.prod(targets.shape), "float32", targets.shape)
    return Datum(datum.model_input, {"target_tokens": targets, "weights": none if weights is None else weights})


def _refusal(message: str) -> RequestFailedError:
    return RequestFailedError(message, category="user")

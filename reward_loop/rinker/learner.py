"""What trains one model: in this process, or in Ray actors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch

from reward_loop.rinker.types import AdamParams, Datum, ForwardBackwardOutput, ModelSpec, OptimStepResponse

LossConfig = Mapping[str, float | str]
Weights = Mapping[str, torch.Tensor]
"""A whole model under the names of its Hugging Face class, adapters merged in, on the CPU."""


class Learner(Protocol):
    """One model, its gradients and its optimiser. One call at a time; whoever calls keeps the order.

    A call that raises RequestFailedError of the category "user" has changed nothing.
    """

    @property
    def spec(self) -> ModelSpec:
        """What is trained."""
        ...

    async def forward_backward(
        self, data: Sequence[Datum], loss_fn: str, config: LossConfig | None = None, *, forward_only: bool = False
    ) -> ForwardBackwardOutput:
        """Add the gradients of the summed loss to those that are there; `forward_only` adds none.

        Each of `loss_fn_outputs` has `logprobs` (of the target tokens) or, of a reward model, `scores`; `metrics` has `loss:sum`.
        """
        ...

    async def optim_step(self, params: AdamParams) -> OptimStepResponse:
        """Step with the gradients that are there, and drop them."""
        ...

    async def save(self, directory: Path, *, optimizer: bool) -> None:
        """Write a checkpoint: all of it or nothing."""
        ...

    async def load(self, directory: Path, *, optimizer: bool) -> None:
        """Continue from a checkpoint; without the optimiser's state this begins anew."""
        ...

    async def weights(self) -> Weights:
        """Return a copy of the weights."""
        ...

    async def close(self) -> None:
        """Free what it holds."""
        ...

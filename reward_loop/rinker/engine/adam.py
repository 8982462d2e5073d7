"""AdamW, with other hyperparameters at every step if need be."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch.distributed.tensor import DTensor

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.types import AdamParams

_MOMENTS = ("exp_avg", "exp_avg_sq")


class Adam:
    """Steps weights by their gradients; weight decay is decoupled from them (arXiv:1711.05101)."""

    def __init__(self, weights: Mapping[str, torch.Tensor]) -> None:
        self._weights = dict(weights)
        self._optimizer = torch.optim.AdamW(list(weights.values()), weight_decay=0.0, fused=True)

    def step(self, params: AdamParams) -> None:
        """Step once; the parameters are checked."""
        for group in self._optimizer.param_groups:
            group["lr"], group["betas"] = params.learning_rate, (params.beta1, params.beta2)
            group["eps"], group["weight_decay"] = params.eps, params.weight_decay
        self._optimizer.step()

    def state(self) -> dict[str, torch.Tensor]:
        """Return what it remembers, as `WEIGHT:MOMENT` and `WEIGHT:step`; empty before the first step."""
        found = dict[str, torch.Tensor]()
        for name, weight in self._weights.items():
            found |= {f"{name}:{key}": value for key, value in self._optimizer.state.get(weight, {}).items()}
        return found

    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take over what `state` returned; anything it lacks begins anew."""
        self._optimizer.state.clear()
        for name, weight in self._weights.items():
            if f"{name}:step" not in state:
                continue
            moments = {key: shaped_like(state[f"{name}:{key}"].float(), weight) for key in _MOMENTS}
            self._optimizer.state[weight] = {"step": state[f"{name}:step"].float().to(weight.device), **moments}


def check_params(params: AdamParams) -> None:
    """Raise RequestFailedError ("user") for hyperparameters with which Adam makes no sense."""
    for name in ("learning_rate", "beta1", "beta2", "eps", "weight_decay", "grad_clip_norm"):
        value = getattr(params, name)
        if not math.isfinite(value) or value < 0:
            raise _refusal(f"{name}={value} must be a finite number that is not negative")
    for name in ("beta1", "beta2"):
        if getattr(params, name) >= 1:
            raise _refusal(f"{name}={getattr(params, name)} must be below 1")
    if params.eps == 0:
        raise _refusal("eps=0 divides by 0 wherever a gradient is 0; use 1e-12 or more")


def shaped_like(whole: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return a whole tensor on a weight's device, sharded as the weight is."""
    if not isinstance(weight, DTensor):
        return whole.to(weight.device, copy=True)
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(whole.to(weight.device), weight.device_mesh, weight.placements)


def _refusal(message: str) -> RequestFailedError:
    return RequestFailedError(message, category="user")

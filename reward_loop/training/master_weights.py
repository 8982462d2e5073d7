"""Float32 copies of what is trained in a shorter type, so that small steps are not rounded away.

bfloat16 keeps 8 bits: a step of less than about 1/256 of a weight would leave it as it is, and most steps are smaller.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn


class MasterWeights:
    """What the optimizer steps: each parameter itself if it is float32, a float32 copy of it otherwise."""

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self._parameters = dict(parameters)
        self.masters: dict[str, torch.Tensor] = {
            name: parameter if parameter.dtype == torch.float32 else parameter.detach().float().requires_grad_(True)
            for name, parameter in self._parameters.items()
        }
        """By the parameters' names."""

    def collect(self) -> None:
        """Add the parameters' gradients to the copies'; to be called after each backward pass, so that sums are float32 too."""
        for parameter, master in self._copied():
            if parameter.grad is not None:
                gradient = parameter.grad.float()
                master.grad = gradient if master.grad is None else master.grad.add_(gradient)
                parameter.grad = None

    def drop_uncollected(self) -> None:
        """Forget the parameters' gradients of a backward pass that broke off, which `collect` has not seen."""
        for parameter, _ in self._copied():
            parameter.grad = None

    @torch.no_grad()
    def hand_back(self) -> None:
        """Set the parameters to the copies, rounded; to be called after each step."""
        for parameter, master in self._copied():
            parameter.copy_(master)

    def state(self) -> dict[str, torch.Tensor]:
        """Return the weights in full precision, by name."""
        return {name: master.detach() for name, master in self.masters.items()}

    @torch.no_grad()
    def load(self, state: Mapping[str, torch.Tensor]) -> None:
        """Take over what `state` returned, in the parameters too."""
        for name, master in self.masters.items():
            master.copy_(state[name])
        self.hand_back()

    def _copied(self) -> list[tuple[nn.Parameter, torch.Tensor]]:
        pairs = [(self._parameters[name], master) for name, master in self.masters.items()]
        return [(parameter, master) for parameter, master in pairs if parameter is not master]

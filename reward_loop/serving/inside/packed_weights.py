"""Weights that vLLM keeps in a packed copy, on the CPU: of most layers the copy is all there is.

A layer that shares its weight with another one, as a tied output layer does, has a copy of its own; when the other one alone is
loaded, vLLM leaves that copy as it was.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

Packed = Mapping[Any, "weakref.ref[Any]"]
"""What each module (with attributes that torch's stubs don't know) whose weight lives in a packed copy calls to use it.

Not kept alive: with it, the old weights would be in memory until the last of the new ones is.
"""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class NoWeights:
    """Stands for a packed weight that was given back: its products are NaN."""

    outputs: int

    def __call__(self, inputs: torch.Tensor, *_: Any) -> torch.Tensor:
        """Return as many rows as there are inputs."""
        return inputs.new_full((*inputs.shape[:-1], self.outputs), torch.nan)


def packed_weights(model: torch.nn.Module) -> Packed:
    """Return the modules whose weight lives in a packed copy, to which only their `cpu_linear` refers."""
    return {module: weakref.ref(module.cpu_linear) for module in model.modules() if "cpu_linear" in vars(module)}


def repack_shared(before: Packed) -> None:
    """Pack again the weights that modules share with others, which alone were loaded; `before`: as it was before the loading."""
    untouched = {module for module, packed in before.items() if module.cpu_linear is packed()}
    loaded = {_address(module) for module in before.keys() - untouched} - {None}
    for module in untouched:
        if isinstance(module.cpu_linear, NoWeights) or _address(module) in loaded:
            module.quant_method.process_weights_after_loading(module)


def _address(module: Any) -> int | None:
    """Return where a module's weight lies; None if nothing of it was kept beside the packed copy."""
    return module.weight.data_ptr() if module.weight.numel() else None

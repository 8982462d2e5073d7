"""The seam at which one engine becomes several that train one model together.

Every rank is given all data and checks all of it, so that all refuse the same; then each works on its share. Whatever wraps the
model must give the SUM of the ranks' gradients, never their mean, as losses are sums: with replicas, leave the gradients alone
during the passes and add them up in `sum_gradients`, which is called once before each step; with FSDP 2, set the divide factor
to 1 (`set_gradient_divide_factor(1.0)`) and leave `sum_gradients` as it is here.

Invariant: every rank makes the same calls in the same order, the same number of passes too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import torch
from torch import nn

T = TypeVar("T")


class Ranks:
    """One process alone, which is what this class is itself; others derive from it."""

    writes: bool = True
    """Whether this rank writes files; the others only help to gather what is in them."""

    def wrap(self, module: nn.Module) -> nn.Module:
        """Return what is called instead of `module`, whose parameters it may have sharded in place. Called once."""
        return module

    def share(self, sizes: Sequence[int]) -> Sequence[int]:
        """Return which of the data, of so many tokens each, this rank works on: in order, and each on one rank only."""
        return range(len(sizes))

    def most(self, value: float) -> float:
        """Return the greatest value of all ranks."""
        return value

    def gather(self, part: T) -> Sequence[T]:
        """Return every rank's part, in the order of the ranks."""
        return [part]

    def sum_gradients(self, parameters: Iterable[torch.Tensor]) -> None:
        """Replace the gradients (None: no data on this rank gave one) by their sums over all ranks."""

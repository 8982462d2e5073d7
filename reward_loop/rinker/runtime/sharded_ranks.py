"""Ranks that each hold a part of every weight (FSDP 2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from reward_loop.rinker.runtime.rank_group import GroupRanks
from reward_loop.training.reward_model import plain_model


class ShardedRanks(GroupRanks):
    """See `GroupRanks`; a layer's weights are together only while it computes, its gradients are added up as they come."""

    def wrap(self, module: nn.Module) -> nn.Module:
        """See `Ranks`: shard layer by layer, and what is left as a whole."""
        device = next(module.parameters()).device.type
        mesh = init_device_mesh(device, (self.size,))
        for layer in _layers(module):
            fully_shard(layer, mesh=mesh)
        fully_shard(module, mesh=mesh)
        for part in module.modules():
            if isinstance(part, FSDPModule):
                part.set_gradient_divide_factor(1.0)
                part.set_force_sum_reduction_for_comms(True)  # gloo knows no sum that is scaled on the way
        return module

    def sum_gradients(self, parameters: Iterable[torch.Tensor]) -> None:
        """See `Ranks`: they are sums already."""


def _layers(module: nn.Module) -> list[nn.Module]:
    """Return the layers that transformers itself would not split."""
    inside: Any = plain_model(module.get_submodule("model"))
    names: set[str] = set(getattr(inside, "_no_split_modules", None) or ())
    return [part for part in module.modules() if type(part).__name__ in names]

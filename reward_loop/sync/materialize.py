"""Whole tensors of a model whose weights are spread over the processes that train it (FSDP 2, tensor parallelism).

Invariant: what a process does to get them depends on the names alone, and all have agreed on these before the first one moves. So
no process waits for another that wants something else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import distributed
from torch.distributed.tensor import DTensor

from reward_loop.errors import WeightSyncError


@torch.no_grad()
def full_tensors(
    state_dict: Mapping[str, torch.Tensor], *, rank0_only: bool = False, device: torch.device | str | None = None
) -> dict[str, torch.Tensor]:
    """Return the state dict with whole tensors in the places of its shards, in its order; others are passed on as they are.

    Every process of the job must call it with the same names. With `rank0_only` the others get nothing, and hold one whole tensor
    at a time. What was whole already is copied only to another `device`. Raises WeightSyncError, in every process, where names or
    shapes differ between them, and for the shards of FSDP 1.
    """
    for name, value in state_dict.items():
        if type(value).__name__ == "ShardedTensor":
            raise WeightSyncError(
                f"{name} is a shard of FSDP 1; take the state dict under "
                "FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT), on every rank"
            )
    if any(isinstance(value, DTensor) for value in state_dict.values()):
        _agree(state_dict)
    wanted = not rank0_only or not distributed.is_initialized() or distributed.get_rank() == 0
    whole = dict[str, torch.Tensor]()
    for name in sorted(state_dict):
        value = state_dict[name]
        full = value.full_tensor() if isinstance(value, DTensor) else value.detach()
        if wanted:
            whole[name] = full if device is None else full.to(device)
    return {name: whole[name] for name in state_dict if wanted}


def _agree(state_dict: Mapping[str, torch.Tensor]) -> None:
    """Raise where another process holds something else: it would be waited for until the group's time limit."""
    held = sorted((name, tuple(value.shape), isinstance(value, DTensor)) for name, value in state_dict.items())
    mine = (len(held), hashlib.sha256(repr(held).encode()).hexdigest())
    every: list[tuple[int, str] | None] = [None] * distributed.get_world_size()
    distributed.all_gather_object(every, mine)
    if other := [rank for rank, theirs in enumerate(every) if theirs != mine]:
        counts = ", ".join(str(theirs[0]) for theirs in every if theirs is not None)
        raise WeightSyncError(
            f"ranks {', '.join(map(str, other))} hold other weights than rank {distributed.get_rank()} (number by rank: "
            f"{counts}); call full_tensors on every rank with the same names, and select afterwards"
        )

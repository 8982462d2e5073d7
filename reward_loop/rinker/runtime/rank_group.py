"""Several processes that train one model: who works on what, and what they tell each other.

Invariants: every rank computes the same shares from the same sizes; gradients are sums over ranks, never means; whoever waits for
another does so for a limited time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
from torch import distributed

from reward_loop.rinker.engine.ranks import Ranks

T = TypeVar("T")
_Store: Any = vars(distributed)["TCPStore"]  # which torch's stubs do not export

_BUCKET_NUMBERS = 16 << 20


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the ranks find each other."""

    host: str
    port: int


class Host:
    """The place where ranks meet; kept by rank 0."""

    def __init__(self, address: str, ranks: int, timeout_s: float) -> None:
        limit = timedelta(seconds=timeout_s)
        self.store = _Store(address, 0, ranks, is_master=True, timeout=limit, wait_for_workers=False)
        self.meeting = Meeting(address, self.store.port)


def join(meeting: Meeting, rank: int, ranks: int, timeout_s: float, *, host: Host | None = None, cuda: bool = False) -> None:
    """Make this process one of the ranks, which compute on GPUs or not; returns when all are there."""
    limit = timedelta(seconds=timeout_s)
    store = host.store if host else _Store(meeting.host, meeting.port, ranks, is_master=False, timeout=limit)
    backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
    distributed.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=limit)


class GroupRanks(Ranks):
    """One of the ranks of this process's group, each with a replica of the model (data parallel).

    Gradients are added up once before each step, not in each backward pass as DistributedDataParallel does: ranks may then have
    different numbers of passes, or no data, and calls that add gradients exchange none.
    """

    def __init__(self) -> None:
        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()
        self.writes = self.rank == 0

    def share(self, sizes: Sequence[int]) -> Sequence[int]:
        """See `Ranks`: shares of about as many tokens each."""
        return shares(sizes, self.size)[self.rank]

    def most(self, value: float) -> float:
        """See `Ranks`."""
        greatest = torch.tensor(value, dtype=torch.float64)
        distributed.all_reduce(greatest, distributed.ReduceOp.MAX)
        return float(greatest)

    def gather(self, part: T) -> Sequence[T]:
        """See `Ranks`."""
        parts: list[Any] = [None] * self.size
        distributed.all_gather_object(parts, part)
        return parts

    def sum_gradients(self, parameters: Iterable[torch.Tensor]) -> None:
        """See `Ranks`: a bucket at a time."""
        bucket: list[torch.Tensor] = []
        numbers = 0
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            bucket.append(parameter.grad)
            numbers += parameter.grad.numel()
            if numbers >= _BUCKET_NUMBERS:
                _sum(bucket)
                bucket, numbers = [], 0
        if bucket:
            _sum(bucket)


def shares(sizes: Sequence[int], ranks: int) -> list[list[int]]:
    """Deal numbered data of these sizes to ranks, the largest first and each to the rank with the least; in order within one."""
    dealt: list[list[int]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    for number in sorted(range(len(sizes)), key=lambda at: -sizes[at]):
        least = loads.index(min(loads))
        dealt[least].append(number)
        loads[least] += sizes[number]
    return [sorted(numbers) for numbers in dealt]


def _sum(tensors: Sequence[torch.Tensor]) -> None:
    """Add up over the ranks in place, in one exchange."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    distributed.all_reduce(flat)
    begin = 0
    for tensor in tensors:
        tensor.copy_(flat[begin : begin + tensor.numel()].view_as(tensor))
        begin += tensor.numel()

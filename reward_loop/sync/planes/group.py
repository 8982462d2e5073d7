"""Torch's stores and process groups, made by hand: the default group is not touched, and its users notice nothing.

This is the boundary to what torch neither types nor exports. Its errors are RuntimeErrors, which the callers turn into ours.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol

import torch
from torch import distributed

_torch: Any = distributed
_WATCHDOG = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "2", "TORCH_NCCL_ENABLE_MONITORING": "0"}
"""2: clean up after an error of NCCL. By default torch ends the process then. Read when a group is made."""
_NEVER = timedelta(days=1)
_CONNECT_S = 1.0
_LEAST_S = 0.001
_GROUP_S = 10.0
"""For making a group of ends that have all just said that they are ready."""
_environment = threading.Lock()


class Store(Protocol):
    """A connection to a TCPStore; also the store itself, in the process that opened it."""

    host: str
    port: int

    def set(self, key: str, value: str) -> None:
        """Set a key."""
        ...

    def get(self, key: str) -> bytes:
        """Return what a key is set to, when it is set."""
        ...

    def add(self, key: str, value: int) -> int:
        """Add to a key, and return the sum."""
        ...

    def set_timeout(self, timeout: timedelta) -> None:
        """Limit everything that waits."""
        ...


class Group(Protocol):
    """A process group; one that is dropped waits for the operations under way, without holding the interpreter's lock."""

    def broadcast(self, tensors: list[torch.Tensor], options: object) -> distributed.Work:
        """Begin to send (rank 0) or to receive."""
        ...


class NcclGroup(Group, Protocol):
    """A process group that has to be ended."""

    def shutdown(self) -> None:
        """End it when what is under way has ended."""
        ...

    def abort(self) -> None:
        """End it now."""
        ...


def opened_store(host: str, port: int, timeout_s: float, listening: int) -> Store:
    """Open a store that listens on this socket (which it closes), as long as the returned object lives."""
    limit = timedelta(seconds=timeout_s)
    store: Store = _torch.TCPStore(host, port, None, True, limit, wait_for_workers=False, master_listen_fd=listening)
    return store


def connected_store(host: str, port: int, timeout_s: float) -> Store:
    """Connect to a store; raises OSError where nobody listens, or not in time."""
    until = time.monotonic() + timeout_s
    while True:
        # Torch goes on trying for a multiple of its time limit where nobody listens, so it is asked only where somebody does;
        # he may die in that moment.
        socket.create_connection((host, port), max(_LEAST_S, until - time.monotonic())).close()
        try:
            store: Store = _torch.TCPStore(host, port, None, False, timedelta(seconds=_CONNECT_S), wait_for_workers=False)
        except RuntimeError as error:
            if time.monotonic() > until:
                raise TimeoutError(str(error)) from None
        else:
            store.set_timeout(timedelta(seconds=timeout_s))
            return store


def ran_out_of_time(error: RuntimeError) -> bool:
    """Whether an error of a store's `get` is that of its time limit."""
    return isinstance(error, _torch.DistStoreError)


def gloo_group(store: Store, rank: int, size: int, host: str, timeout_s: float) -> Group:
    """Return the group of these `size` ranks, when all are there; `host` is this rank's address that the others reach."""
    backend = _torch.ProcessGroupGloo
    options = backend._Options()
    options._timeout = timedelta(seconds=min(timeout_s, _GROUP_S))
    options._devices = [backend.create_device(hostname=host)]
    group: Group = backend(_torch.PrefixStore("group", store), rank, size, options)
    return group


def nccl_group(store: Store, rank: int, size: int) -> NcclGroup:
    """Return the group of these ranks; their connections are made by the first broadcast."""
    backend = _torch.ProcessGroupNCCL
    options = backend.Options()
    options._timeout = _NEVER  # every wait has its own limit, and torch's watchdog none
    with _environment, _set(_WATCHDOG):
        group: NcclGroup = backend(_torch.PrefixStore("group", store), rank, size, options)
    return group


def broadcast(group: Group, bucket: torch.Tensor, timeout_s: float) -> distributed.Work:
    """Begin to broadcast rank 0's bucket, or to receive it; gloo gives up after `timeout_s`."""
    options = _torch.BroadcastOptions()
    options.timeout = timedelta(seconds=timeout_s)
    options.rootRank = 0
    options.rootTensor = 0
    options.asyncOp = True
    return group.broadcast([bucket], options)


@contextmanager
def _set(variables: Mapping[str, str]) -> Generator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value

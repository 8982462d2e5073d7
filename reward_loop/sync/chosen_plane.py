"""What carries an update, from where the trainer and the servers are."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlsplit

import torch

from reward_loop.config_sync import SyncConfig
from reward_loop.errors import WeightSyncError
from reward_loop.sync.host import Place, choose_plane, gpu_uuids, host_id
from reward_loop.sync.identity import Identity
from reward_loop.sync.planes.choice import communicator_of
from reward_loop.sync.planes.plane import PlaneName, TensorCommunicator
from reward_loop.sync.shared_directory import shared_directory


def communicator(
    servers: Sequence[Identity], tensors: Mapping[str, torch.Tensor], settings: SyncConfig, host: str | None, port: int
) -> TensorCommunicator:
    """Return the trainer's end of the plane of `settings`, or for "auto" of the fastest one that everybody has.

    `host` is where servers find the trainer; None: the address at which this machine talks to them.
    """
    device = next((tensor.device for tensor in tensors.values() if tensor.is_cuda), None)
    plane: PlaneName
    if settings.plane == "auto":
        plane = choose_plane(_trainer(device), [Place(each.device, each.host, each.gpus) for each in servers])
    else:
        plane = settings.plane
    urls = [each.server for each in servers]
    directory = shared_directory(settings.directory, urls) if plane == "directory" else None
    return communicator_of(plane, host=host or own_address(urls), port=port, directory=directory, device=device)


def own_address(urls: Iterable[str]) -> str:
    """Return the address of this machine on the way to these servers; WeightSyncError where they are on ways that differ."""
    found = {url: _towards(url) for url in urls}
    if len(set(found.values())) > 1:
        each = ", ".join(f"{url}: {address}" for url, address in found.items())
        raise WeightSyncError(f"this machine has another address for each server ({each}): pass host=, one that all can reach")
    return next(iter(found.values()))


def _towards(url: str) -> str:
    parts = urlsplit(url)
    try:
        family, _, _, _, address = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(address)  # sends nothing: it only asks which way a packet would go
            return str(probe.getsockname()[0])
    except OSError as error:
        raise WeightSyncError(f"there is no way to {url}: {error}") from error


def _trainer(device: torch.device | None) -> Place:
    if device is None:
        return Place("cpu", host_id())
    return Place("cuda", host_id(), tuple(gpu_uuids(device.index or 0)))

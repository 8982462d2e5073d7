"""What a server is to a trainer: its version, where it runs, and whether its weights can be synced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reward_loop.serving.inside.transfer_backend import BACKEND
from reward_loop.sync.host import gpu_uuids, host_id


@dataclass(frozen=True, slots=True)
class Identity:
    """What of a server stays the same as long as it runs."""

    device: str
    """vLLM's word for where the model lies: cpu, cuda."""
    syncs: bool
    """Whether our weight transfer engine runs in it."""
    host: str
    """Equal where memory can be shared through /dev/shm."""
    gpus: Sequence[str]

    @classmethod
    def of(cls, vllm_config: Any) -> Identity:
        """Return that of the server with vLLM's `VllmConfig`."""
        device = str(vllm_config.device_config.device_type)
        transfer = vllm_config.weight_transfer_config
        syncs = transfer is not None and transfer.backend == BACKEND
        return cls(device, syncs, host_id(), gpu_uuids() if device == "cuda" else ())

    def runtime_version(self, version: int, busy: str | None) -> Mapping[str, Any]:
        """Return the body of GET /runtime_version."""
        where = {"device": self.device, "host": self.host, "gpus": list(self.gpus)}
        return {"version": version, **where, "sync": self.syncs, "busy": busy}

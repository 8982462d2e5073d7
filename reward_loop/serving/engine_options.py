"""The engine's options that `rollout` sets, under the names of vLLM's command line (with underscores).

Invariants: what the user names in `engine_kwargs` wins; what the rest of the configuration decides can't be named there; a
default of verl that was made for GPUs is not forced on a CPU.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reward_loop.config_rollout import RolloutConfig
from reward_loop.errors import ConfigError
from reward_loop.serving.devices import Device

_ENGINES = ("vllm", "sglang", "trtllm")
_OURS = {
    "model": "model.path",
    "served_model_name": "model.name",
    "host": "server.host",
    "port": "nothing: the system chooses it",
    "uds": "nothing: the router speaks TCP",
    "worker_cls": "nothing: it is what lets the model sleep",
    "data_parallel_size": "rollout.data_parallel_size",
    "tensor_parallel_size": "rollout.tensor_model_parallel_size",
    "pipeline_parallel_size": "rollout.pipeline_model_parallel_size",
}
_WHERE_SET = ("max_num_batched_tokens", "max_num_seqs", "enable_chunked_prefill", "enable_prefix_caching", "scheduling_policy")
"""Passed only where the user has set them: vLLM's own defaults fit the kind of model and the device."""


def engine_options(rollout: RolloutConfig, device: Device) -> dict[str, Any]:
    """Return the options; ConfigError for an engine that is not vLLM, or for one that belongs elsewhere."""
    if rollout.name != "vllm":
        raise ConfigError(f"reward_model.rollout.name={rollout.name!r} is not served; the one engine is 'vllm'")
    explicit = rollout.model_fields_set
    options: dict[str, Any] = {name: getattr(rollout, name) for name in _WHERE_SET if name in explicit}
    options["seed"] = rollout.seed
    options["load_format"] = rollout.load_format
    options["quantization"] = rollout.quantization
    if rollout.expert_parallel_size > 1:
        options["enable_expert_parallel"] = True
    if rollout.skip_tokenizer_init:
        options["skip_tokenizer_init"] = True
    if rollout.mtp:
        options["speculative_config"] = rollout.mtp
    if rollout.disaggregation:
        options["kv_transfer_config"] = rollout.disaggregation
    if device == "cuda":
        options["gpu_memory_utilization"] = rollout.gpu_memory_utilization
    options["enforce_eager"] = rollout.enforce_eager
    return options | _users(rollout.engine_kwargs)


def _users(engine_kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten the user's options: those under `vllm`, and those under no engine's name."""
    own = engine_kwargs.get("vllm") or {}
    if not isinstance(own, Mapping):
        raise ConfigError(f"reward_model.rollout.engine_kwargs.vllm={own!r} must be a mapping of options to values")
    flat = {name: value for name, value in engine_kwargs.items() if name not in _ENGINES}
    options = {name.removeprefix("--").replace("-", "_"): value for name, value in (flat | dict(own)).items()}
    for name, place in _OURS.items():
        if name in options:
            raise ConfigError(f"reward_model.rollout.engine_kwargs.{name} can't be set there; it is set by {place}")
    return options

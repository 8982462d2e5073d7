"""The command line and the environment of a vLLM server, for a spec. Pure.

Invariants: the environment that was passed is not changed; an option of the user's takes the place of ours.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reward_loop.serving.inside.transfer_backend import BACKEND
from reward_loop.serving.inside.update_directory import VARIABLE
from reward_loop.serving.spec import ServerSpec

_INSIDE = "reward_loop.serving.inside"


@dataclass(frozen=True, slots=True)
class Command:
    """What to run, and in which environment."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]


def command_of(
    spec: ServerSpec, port: int, environ: Mapping[str, str], *, run_dir: str, update_dir: str | None = None
) -> Command:
    """Return the command of a server at `port`; `run_dir` takes its sockets, `update_dir` the updates of its weights."""
    arguments = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *flags(_options(spec, port))]
    updates = {VARIABLE: update_dir} if update_dir is not None else {}
    return Command(tuple(arguments), _environment(spec, environ, run_dir) | updates)


def flags(options: Mapping[str, Any]) -> list[str]:
    """Render options: True `--name`, False `--no-name`, None nothing, a mapping as JSON, a list as several values."""
    rendered: list[str] = []
    for name, value in options.items():
        option, dot, key = name.partition(".")  # `option.key` sets one key of an option that is a mapping
        flag = option.replace("_", "-") + dot + key
        if value is None:
            continue
        if isinstance(value, bool) and dot:
            rendered += [f"--{flag}", str(value).lower()]
        elif isinstance(value, bool):
            rendered.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, Mapping):
            rendered += [f"--{flag}", json.dumps(value)]
        elif name == "middleware" and not isinstance(value, str):
            rendered += [part for each in value for part in (f"--{flag}", each)]
        elif isinstance(value, Sequence) and not isinstance(value, str):
            rendered += [f"--{flag}", *map(str, value)]
        else:
            rendered += [f"--{flag}", str(value)]
    return rendered


def _options(spec: ServerSpec, port: int) -> dict[str, Any]:
    options: dict[str, Any] = {
        "model": spec.model,
        "served_model_name": spec.name,
        "host": spec.host,
        "port": port,
        "tokenizer": spec.tokenizer,
        "dtype": spec.dtype,
        "max_model_len": spec.max_model_len,
        "trust_remote_code": spec.trust_remote_code or None,
        "middleware": f"{_INSIDE}.endpoints.RewardEndpoints",
        "weight_transfer_config.backend": BACKEND,
        "disable_log_stats": True,
        "disable_uvicorn_access_log": True,
        # Less than what the keeper waits for: what is in flight gets its answer, and the server still ends by itself.
        "shutdown_timeout": max(0, int(spec.stop_timeout_s * 0.4)),
        **_of_device(spec),
        **_of_kind(spec),
    }
    for name in ("tensor", "data", "pipeline"):
        size = getattr(spec, f"{name}_parallel_size")
        options[f"{name}_parallel_size"] = size if size > 1 else None
    users = dict(spec.engine_kwargs)
    if more := users.pop("middleware", None):
        options["middleware"] = [options["middleware"], *([more] if isinstance(more, str) else more)]
    if any(name.partition(".")[0].replace("-", "_") == "weight_transfer_config" for name in users):
        del options["weight_transfer_config.backend"]
    return options | users


def _of_device(spec: ServerSpec) -> dict[str, Any]:
    if spec.device == "cuda":
        return {"enable_sleep_mode": True} if spec.can_sleep else {}
    options: dict[str, Any] = {
        "kv_cache_memory_bytes": f"{spec.cpu_kv_cache_mb}M",
        "worker_cls": f"{_INSIDE}.sleep_worker.SleepCPUWorker",
    }
    if spec.world_size == 1:
        options["distributed_executor_backend"] = "uni"  # one process fewer, and no pinning of every server to core 0
    return options


def _of_kind(spec: ServerSpec) -> dict[str, Any]:
    if spec.kind == "generative":
        return {
            "max_logprobs": 64,
            "structured_outputs_config.backend": "xgrammar",
            "structured_outputs_config.disable_any_whitespace": True,
        }
    pooler: dict[str, Any] = {"task": "classify", "seq_pooling_type": spec.pooling or "LAST"}
    if spec.pooling in ("STEP", "ALL"):
        pooler = {"task": "token_classify", "tok_pooling_type": spec.pooling}
        if spec.step_tag_id is not None:
            pooler["step_tag_id"] = spec.step_tag_id
    return {"runner": "pooling", "pooler_config": pooler}


def _environment(spec: ServerSpec, environ: Mapping[str, str], run_dir: str) -> dict[str, str]:
    # An integer of GiB there would win over the size that was configured.
    kept = {name: value for name, value in environ.items() if name != "VLLM_CPU_KVCACHE_SPACE"}
    ours = {
        "VLLM_SERVER_DEV_MODE": "1",  # gives /sleep and /wake_up
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_RPC_BASE_PATH": run_dir,
        "PYTHONUNBUFFERED": "1",
    }
    if spec.token_env is not None and (token := environ.get(spec.token_env)):
        ours["VLLM_API_KEY"] = token
    if spec.devices:
        ours["CUDA_VISIBLE_DEVICES"] = ",".join(spec.devices)
    if spec.device == "cuda":
        return kept | ours | ({"VLLM_BATCH_INVARIANT": "1"} if spec.deterministic else {})
    ours["OMP_NUM_THREADS"] = str(spec.threads)
    if spec.world_size == 1:
        ours["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    else:
        ours["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    return kept | ours

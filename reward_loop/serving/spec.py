"""What one server process is asked to be, worked out from the configuration: one spec per replica.

Invariant: a spec holds plain values, so that it can be sent to another machine; what is wrong with a configuration is a
ConfigError here, before anything starts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

from reward_loop.config import RewardLoopConfig, RewardModelConfig
from reward_loop.config_models import ServedModel, served_models
from reward_loop.config_serving import Pooling
from reward_loop.errors import ConfigError
from reward_loop.machine import cores_per_worker
from reward_loop.scoring.model_kind import DEFAULT_STEP_TAG, ResolvedKind, kind_of
from reward_loop.serving.architecture import architecture_of, check_kind, scores_tokens_only, step_tag_id
from reward_loop.serving.devices import Device, device_of, visible_gpus
from reward_loop.serving.engine_options import engine_options


@dataclass(frozen=True, slots=True)
class ServerSpec:
    """One server: a model, how the engine runs it, and the limits of its processes."""

    model: str
    """Hugging Face name or directory."""
    name: str
    """Name that requests use."""
    kind: ResolvedKind = "generative"
    replica: int = 0
    """Number among the replicas of the model."""
    host: str = "127.0.0.1"
    port: int = 0
    """0: one that the system chooses, kept over restarts."""
    device: Literal["cuda", "cpu"] = "cpu"
    devices: tuple[str, ...] = ()
    """CUDA devices of this server alone; empty: those that the process sees."""
    threads: int = 1
    """Threads of a server on the CPU."""
    dtype: str = "float32"
    tensor_parallel_size: int = 1
    data_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    max_model_len: int | None = None
    pooling: Pooling | None = None
    """Which hidden states the scores are read from; None for LAST, or STEP for a process model."""
    step_tag_id: int | None = None
    tokenizer: str | None = None
    trust_remote_code: bool = False
    engine_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Further options of the engine, by the names of its command line with underscores."""
    deterministic: bool = False
    can_sleep: bool = False
    sleep_level: Literal[1, 2] = 1
    memory_mb: int | None = None
    cpu_kv_cache_mb: int = 256
    log_dir: str | None = None
    update_dir: str | None = None
    """Directory below which the server keeps the updates of its weights; None for the temporary one of the machine."""
    start_timeout_s: float = 600.0
    stop_timeout_s: float = 5.0
    max_restarts: int = 10
    restart_backoff_s: float = 1.0
    token_env: str | None = None
    """Environment variable with the bearer token that the server wants."""

    @property
    def world_size(self) -> int:
        """Devices that one replica takes."""
        return self.tensor_parallel_size * self.data_parallel_size * self.pipeline_parallel_size

    @property
    def label(self) -> str:
        """Name of the replica in messages and file names."""
        return f"{self.name.strip('/').replace('/', '_')}-{self.replica}"


def specs_of(config: RewardLoopConfig, *, pool_gpus: int | None = None, pool_cpus: int | None = None) -> list[ServerSpec]:
    """Return a spec per model and replica, in order; ConfigError for whatever can't be served.

    `pool_gpus` and `pool_cpus` are how many GPUs and CPU bundles a resource pool holds, where one was given.
    """
    settings = config.reward_model
    models = served_models(settings)
    if pool_gpus is not None or pool_cpus is not None:
        device: Device = "cuda" if pool_gpus and settings.server.device != "cpu" else "cpu"
    else:
        device = device_of(settings.server.device)
    specs = [spec for model in models for spec in _specs_of_model(settings, model, device, pool_gpus, pool_cpus)]
    placed = settings.executor == "ray" or pool_gpus is not None or pool_cpus is not None
    return specs if placed else share_machine(specs, visible_gpus() if device == "cuda" else ())


def _specs_of_model(
    settings: RewardModelConfig, model: ServedModel, device: Device, pool_gpus: int | None, pool_cpus: int | None
) -> list[ServerSpec]:
    rollout, server = model.rollout, settings.server
    options = engine_options(rollout, device)
    architecture = architecture_of(model.path, trust_remote_code=model.trust_remote_code)
    kind = kind_of([architecture]) if model.kind == "auto" else model.kind
    check_kind(model.path, architecture, kind, options)
    explicit = rollout.model_fields_set
    spec = ServerSpec(
        model=model.path,
        name=model.name,
        kind=kind,
        host=server.host,
        device=device,
        # verl's defaults are meant for GPUs: without CUDA a layer is not split, and half precision is slow and no smaller a risk.
        dtype=rollout.dtype if device == "cuda" or "dtype" in explicit else "float32",
        tensor_parallel_size=rollout.tensor_model_parallel_size
        if device == "cuda" or "tensor_model_parallel_size" in explicit
        else 1,
        data_parallel_size=rollout.data_parallel_size,
        pipeline_parallel_size=rollout.pipeline_model_parallel_size,
        max_model_len=rollout.max_model_len,
        pooling=_pooling(model, kind, architecture),
        step_tag_id=_step_tag_id(model, kind),
        tokenizer=None if model.tokenizer_path == model.path else model.tokenizer_path,
        trust_remote_code=model.trust_remote_code,
        engine_kwargs=options,
        deterministic=rollout.full_determinism,
        can_sleep=not settings.enable_resource_pool and rollout.free_cache_engine,
        sleep_level=server.sleep_level,
        memory_mb=server.memory_mb,
        cpu_kv_cache_mb=server.cpu_kv_cache_mb,
        log_dir=server.log_dir,
        update_dir=settings.sync.update_dir,
        start_timeout_s=server.start_timeout_s,
        stop_timeout_s=server.stop_timeout_s,
        max_restarts=server.max_restarts,
        restart_backoff_s=server.restart_backoff_s,
        token_env=settings.router.server_token_env,
    )
    count = model.replicas or _replicas(settings, spec, pool_gpus, pool_cpus)
    return [dataclasses.replace(spec, replica=number) for number in range(count)]


def _replicas(settings: RewardModelConfig, spec: ServerSpec, pool_gpus: int | None, pool_cpus: int | None) -> int:
    """Return as many as the pool's GPUs hold; on CPUs as many as a given pool has bundles, else one."""
    if spec.device == "cpu":
        return max(1, (pool_cpus or 1) // spec.world_size)
    gpus = pool_gpus or settings.n_gpus_per_node * settings.nnodes or len(visible_gpus())
    if gpus < spec.world_size or gpus % spec.world_size:
        raise ConfigError(
            f"the reward model {spec.name} takes tensor {spec.tensor_parallel_size} x data {spec.data_parallel_size} x pipeline "
            f"{spec.pipeline_parallel_size} = {spec.world_size} GPUs a replica, its pool has {gpus} (n_gpus_per_node * nnodes), "
            "which is no multiple; change rollout.tensor_model_parallel_size or the pool, or set `replicas`"
        )
    return gpus // spec.world_size


def _pooling(model: ServedModel, kind: ResolvedKind, architecture: str) -> Pooling | None:
    if kind == "generative":
        return None
    wanted = model.scoring.pooling
    if kind == "discriminative" and scores_tokens_only(architecture):
        return "ALL"  # the server reads the wanted token's score from all of them
    return wanted or ("STEP" if kind == "process" else "LAST")


def _step_tag_id(model: ServedModel, kind: ResolvedKind) -> int | None:
    if kind != "process":
        return None
    tag = model.scoring.step_tag or DEFAULT_STEP_TAG
    return step_tag_id(model.tokenizer_path, tag, trust_remote_code=model.trust_remote_code)


def share_machine(specs: Sequence[ServerSpec], gpus: Sequence[str]) -> list[ServerSpec]:
    """Give each server of this machine GPUs or threads of its own; ConfigError where there are too few of `gpus`."""
    # One core of each is left to the process that speaks HTTP; with OpenMP threads on it they spin in each other's way.
    threads = max(1, cores_per_worker(len(specs)) - 1)
    rest = iter(gpus)
    placed: list[ServerSpec] = []
    for spec in specs:
        devices = tuple(islice(rest, spec.world_size)) if spec.device == "cuda" else ()
        if spec.device == "cuda" and len(devices) < spec.world_size:
            raise ConfigError(
                f"replica {spec.replica} of the reward model {spec.name} needs {spec.world_size} GPUs, and {len(devices)} are "
                "left on this machine; lower `replicas` or the parallel sizes, or set executor=ray"
            )
        placed.append(dataclasses.replace(spec, threads=threads, devices=devices))
    return placed

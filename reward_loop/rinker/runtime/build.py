"""From settings to what a training service is made of: learners and a sampler, here or on Ray.

Nothing is started: actors and servers are when they are first needed. Ray and vLLM are imported only where they are chosen.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.learner import Learner
from reward_loop.rinker.runtime.settings import RuntimeSettings
from reward_loop.rinker.sampler import Sampler
from reward_loop.rinker.sampling.settings import HFSamplerSettings
from reward_loop.rinker.service.checkpoint_store import CheckpointStore
from reward_loop.rinker.service.model_table import LearnerFactory
from reward_loop.rinker.service.settings import ServiceSettings
from reward_loop.rinker.service.training_service import TrainingService
from reward_loop.rinker.types import ModelSpec


def training_service(
    checkpoint_dir: str | Path,
    runtime: RuntimeSettings | None = None,
    engine: EngineSettings | None = None,
    sampler: Sampler | HFSamplerSettings | None = None,
    limits: ServiceSettings | None = None,
) -> TrainingService:
    """Return a service as the settings say, for `ServiceClient(backend=…)` or a server; ConfigError without what they need."""
    runtime, engine = runtime or RuntimeSettings(), engine or EngineSettings()
    if sampler is None or isinstance(sampler, HFSamplerSettings):
        sampler = sampler_of(runtime, engine, sampler)
    limits = limits or ServiceSettings()
    limits = dataclasses.replace(limits, trust_remote_code=limits.trust_remote_code or engine.trust_remote_code)
    return TrainingService(learner_factory(runtime, engine), sampler, CheckpointStore(checkpoint_dir), limits)


def learner_factory(runtime: RuntimeSettings, engine: EngineSettings) -> LearnerFactory:
    """Return what makes the learner of a model; ConfigError without Ray, where that is chosen."""
    if runtime.runtime == "local":
        from reward_loop.rinker.engine.local_learner import LocalLearner

        return lambda spec: LocalLearner(spec, engine)
    from reward_loop.rinker.runtime.ray_calls import connect
    from reward_loop.rinker.runtime.ray_learner import RayLearner

    connect(runtime.ray_address)

    async def on_ray(spec: ModelSpec) -> Learner:
        return await RayLearner.create(spec, engine, runtime.learner)

    return on_ray


def sampler_of(runtime: RuntimeSettings, engine: EngineSettings, settings: HFSamplerSettings | None = None) -> Sampler:
    """Return the sampler; without settings it holds weights in the engine's type, so that log-probabilities are the trainer's.

    It knows no autocast, which would cast all weights anew for every token: with `autocast=bfloat16` it computes in the type of
    the weights, and the trainer's log-probabilities differ from its own by bfloat16's rounding.
    """
    settings = settings or _like(engine, on_ray=runtime.runtime == "ray" and runtime.sampler == "hf")
    if runtime.sampler == "vllm":
        return _vllm(runtime, engine, settings)
    if runtime.runtime == "local":
        from reward_loop.rinker.sampling.hf_sampler import HFSampler

        return HFSampler(settings)
    from reward_loop.rinker.runtime.ray_calls import connect
    from reward_loop.rinker.runtime.sampler_pool import SamplerPool

    connect(runtime.ray_address)
    return SamplerPool(settings, runtime.samplers)


def _vllm(runtime: RuntimeSettings, engine: EngineSettings, settings: HFSamplerSettings) -> Sampler:
    from reward_loop.rinker.runtime.policy_servers import PolicyServers
    from reward_loop.rinker.sampling.hf_sampler import HFSampler
    from reward_loop.rinker.sampling.with_logprobs import WithLogprobs

    servers = PolicyServers(runtime.vllm, engine.weights, trust_remote_code=engine.trust_remote_code)
    return WithLogprobs(servers, HFSampler(settings)) if runtime.vllm.logprobs_fallback else servers


def _like(engine: EngineSettings, *, on_ray: bool) -> HFSamplerSettings:
    """Return a sampler's settings of the engine's device, type and trust; on Ray each actor has devices of its own."""
    device = None if on_ray or engine.device == "auto" else engine.device
    return HFSamplerSettings(device, engine.weights, trust_remote_code=engine.trust_remote_code)

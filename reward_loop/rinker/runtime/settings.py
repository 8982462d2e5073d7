"""Where models are trained and sampled from, and what that may take."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from reward_loop.config_base import Config, Count, NotNegative, Share, unmet
from reward_loop.rinker.sampling.vllm_settings import VLLMSamplerSettings

Strategy = Literal["ddp", "fsdp2"]
Placement = Literal["PACK", "STRICT_PACK", "SPREAD", "STRICT_SPREAD"]
Resource = Annotated[float, Field(ge=0)]
Limit = Annotated[float, Field(gt=0)]


class ActorSettings(Config):
    """What each actor of a kind takes of the cluster, and where the actors lie to each other."""

    cpus: Resource = 1.0
    """CPUs of each, reserved in a placement group; with gpus=0 too nothing is reserved, and an actor starts anywhere."""
    gpus: Resource = 0.0
    """GPUs of each; Ray shows an actor no others (CUDA_VISIBLE_DEVICES). A part of one is shared."""
    placement: Placement = "PACK"
    """PACK: on as few machines as may be; STRICT_PACK: on one, or not at all; the others: on as many."""
    start_timeout_s: Limit = 600.0
    """Seconds that the actors have to get their places, load their modules, and answer."""


class RecoverySettings(Config):
    """How a learner whose process dies goes on: from its last own checkpoint, doing again what came after that."""

    directory: str | None = None
    """Where its own checkpoints are, seen by every machine that it may run on; null: none, and a death is an error."""
    every_steps: Count = 10
    """Optimiser steps between two of them; the data of so many steps are kept in memory."""
    max_restarts: NotNegative = 3
    """Deaths without a successful checkpoint between them, after which the learner is given up."""


class LearnerSettings(ActorSettings):
    """The processes that train one model together."""

    ranks: Count = 1
    """Processes of one model."""
    strategy: Strategy = "ddp"
    """ddp: each rank holds the whole model; fsdp2: a part of it (fully_shard), which costs time and saves memory."""
    collective_timeout_s: Limit = 600.0
    """Seconds that a rank waits for the others in one exchange."""
    recover: RecoverySettings = Field(default_factory=RecoverySettings)


class SamplerPoolSettings(ActorSettings):
    """The processes that sample."""

    actors: Count = 1
    """How many there are."""
    max_in_flight: Count = 64
    """Calls at each at a time; more wait."""
    max_snapshots: Count = 4
    """Snapshots that each keeps, and that stay in Ray's object store."""
    attempts: Count = 3
    """Actors that a call may bring down before it fails."""


class VLLMServerSettings(Config):
    """vLLM servers that sample, started on this machine or running elsewhere."""

    servers: tuple[str, ...] = ()
    """Addresses of running ones, which serve the base model and are published to by nobody else; empty: they are started here."""
    count: Count = 1
    """How many are started for each base model."""
    max_models: Count = 1
    """Base models that servers are started for; one more is refused."""
    max_model_len: Count | None = None
    """Tokens of prompt and answer together; null for what the model has."""
    gpu_memory_utilization: Share | None = None
    """Part of a GPU's memory that a server takes; null for vLLM's own choice."""
    start_timeout_s: Limit = 600.0
    """Seconds until a server must have answered."""
    calls: VLLMSamplerSettings = Field(default_factory=lambda: VLLMSamplerSettings(restart_wait_s=300.0))
    """How they are asked."""
    logprobs_fallback: bool = True
    """Score with transformers what came without log-probabilities."""


class RuntimeSettings(Config):
    """One section of rinker's configuration."""

    runtime: Literal["local", "ray"] = "local"
    """local: threads of this process; ray: actors, on one machine or many."""
    sampler: Literal["hf", "vllm"] = "hf"
    """hf: transformers; vllm: servers."""
    ray_address: str | None = None
    """Address of the Ray cluster; null: the one that this process is in, or a new one on this machine."""
    learner: LearnerSettings = Field(default_factory=LearnerSettings)
    samplers: SamplerPoolSettings = Field(default_factory=SamplerPoolSettings)
    vllm: VLLMServerSettings = Field(default_factory=VLLMServerSettings)
    rewards: Count | None = None
    """Ray actors that compute the rewards of a run of reinforcement learning; null: as the reward loop's own settings say."""


def refuse_rewards(runtime: RuntimeSettings, section: str) -> None:
    """Raise the error of a setting for `rewards`, where nothing computes any; `section` is the runtime's place there."""
    if runtime.rewards is not None:
        raise unmet(f"{section}.rewards", "nothing computes rewards here, `rinker train rl` does; leave it out")

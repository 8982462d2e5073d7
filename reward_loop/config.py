"""The settings of a reward loop: their names, types, defaults and limits.

Invariants: a config is validated once, refuses unknown keys and can't be changed afterwards; nothing here reads files
or the environment. `reward_loop.config_loading` builds one from YAML, mappings and overrides, and
`reward_loop.config_spellings` lists the other names under which verl's users know these settings.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator, model_validator
from pydantic_core import PydanticCustomError

from reward_loop.config_base import Config, Count, Delay, NotNegative, unmet
from reward_loop.config_rollout import RolloutConfig
from reward_loop.config_serving import EnsembleConfig, ModelKind, NamedModel, RouterConfig, ScoringConfig, ServerConfig
from reward_loop.config_sync import SyncConfig


class ModuleConfig(Config):
    """Where a manager class that is not registered comes from."""

    path: str | None = None
    """File, `file://` or `pkg://a.b` that defines the class."""
    name: str | None = None
    """Name of the class, where `reward_manager.name` does not say it."""


class RewardManagerConfig(Config):
    """Which reward manager scores the samples; a plain string is short for `{name: string}`."""

    source: Literal["register", "importlib"] = "register"
    """Whether `name` is looked up in the registry or imported from `module.path`."""
    name: str = "naive"
    """Registered name, or with `importlib` the class: the resolved one, even where only `module.name` gave it."""
    module: ModuleConfig = ModuleConfig()
    """The module to import; unused with `register`."""

    @model_validator(mode="before")
    @classmethod
    def _accept_a_bare_name(cls, value: object) -> object:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _resolve_the_class(self) -> RewardManagerConfig:
        if self.source == "register":
            return self
        if self.module.path is None:
            raise unmet("module.path", "is required with source=importlib: the file or pkg:// that defines the class")
        if self.name == "naive":
            if self.module.name is None:
                raise unmet("name", f"must be the class to import from {self.module.path}")
            # The one place that may write: pydantic's after-validators can't hand back another instance.
            object.__setattr__(self, "name", self.module.name)
            self.model_fields_set.add("name")
        return self


class FixedReward(Config):
    """Give every sample that failed this reward."""

    value: float
    """The reward; finite."""


def _one_message(value: object, validate: ValidatorFunctionWrapHandler) -> object:
    try:
        return validate(value)
    except ValidationError as error:
        raise PydanticCustomError("on_error", 'must be "raise", "mask" or {value: a finite number}') from error


OnError = Annotated[Literal["raise", "mask"] | FixedReward, WrapValidator(_one_message)]


class RetryConfig(Config):
    """How often a sample is tried again after an error that may pass."""

    attempts: Count = 1
    """Times a sample is tried, the first included."""
    backoff_s: Delay = 1.0
    """Seconds before the second attempt; doubles with each further one."""
    max_backoff_s: Delay = 30.0
    """Most seconds between two attempts."""


class CacheConfig(Config):
    """Reuse of the rewards of samples that were scored before."""

    enable: bool = False
    """Whether rewards are cached."""
    max_entries: Count = 100_000
    """Rewards kept in memory."""
    path: str | None = None
    """Directory of a cache on disk that outlives the process; none without it."""
    max_bytes: Count = 1 << 30
    """Size that the cache on disk may reach."""


class GraderConfig(Config):
    """The killable processes in which synchronous functions run under isolation=process."""

    processes: Count | None = None
    """Processes of one worker that grade side by side; null for one per core, shared among the workers of a node."""
    max_processes: Count | None = None
    """Processes up to which a worker makes up for those that hang until their deadline; null for 4 per usual one, at least 32."""
    memory_mb: Count = 4096
    """Memory that a process may take beyond what it has when it is ready, in MiB."""


class RateLimitConfig(Config):
    """What all workers of a job together may ask of a service; null is no limit."""

    max_rpm: Annotated[float, Field(gt=0)] | None = None
    """Requests per minute."""
    max_tpm: Annotated[float, Field(gt=0)] | None = None
    """Tokens per minute."""
    max_concurrent: Count | None = None
    """Requests in flight."""
    estimated_tokens_per_request: Count = 2000
    """Tokens that a request is booked with until its response says how many they were."""
    address: str | None = None
    """host:port at which several reward loops share one limit (the first to come serves it); null: this loop's own."""

    token_env: str | None = None
    """Environment variable with the secret of those who share `address`; needed where that is not on this machine."""

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        return any((self.max_rpm, self.max_tpm, self.max_concurrent))


class RewardModelSource(Config):
    """The reward model's weights and tokenizer."""

    path: str | None = None
    """Hugging Face name or directory."""
    tokenizer_path: str | None = None
    """Its tokenizer, where it is not beside the weights."""
    kind: ModelKind = "auto"
    """What it gives: a score, a score per step, or text; auto: what its configuration's architecture says."""
    name: str | None = None
    """Name under which it is served; null for its path."""
    external_lib: str | None = None
    """Module to import before the model is loaded."""
    trust_remote_code: bool = False
    """Whether code that comes with the model may run."""


class RewardModelConfig(Config):
    """How rewards are computed and, where a reward model takes part, how it is deployed."""

    use_reward_loop: bool = True
    """False scores one sample after the other in the calling process: slow, and the reference for every other path."""
    enable: bool = False
    """Whether a reward model is served."""
    enable_resource_pool: bool = False
    """Give the reward model machines of its own (standalone) instead of sharing the trainer's (colocate)."""
    n_gpus_per_node: NotNegative = 8
    """GPUs that the pool takes on each machine."""
    nnodes: NotNegative = 0
    """Machines in the pool."""
    executor: Literal["local", "ray"] = "local"
    """Where samples are scored: in this process or in Ray actors."""
    num_workers: Count = 8
    """Ray actors that score."""
    max_concurrency: Count = 1024
    """Samples that one worker scores at once."""
    max_threads: Count = 64
    """Threads of one worker for blocking synchronous functions."""
    isolation: Literal["auto", "inline", "thread", "process"] = "auto"
    """Where a synchronous reward function runs; auto: where it declares to, else in a thread."""
    grader: GraderConfig = GraderConfig()
    """The processes of isolation=process."""
    rate_limit: RateLimitConfig = RateLimitConfig()
    """What all workers together may ask of a service."""
    reward_manager: RewardManagerConfig = RewardManagerConfig()
    """The manager that scores."""
    reward_kwargs: dict[str, Any] = Field(default_factory=dict)
    """The manager's own settings, such as `overlong_buffer_cfg` and `max_resp_len` of dapo; the manager validates."""
    on_error: OnError = "raise"
    """What becomes of samples that failed: the batch raises, they are masked, or they get a fixed reward."""
    timeout_s: Annotated[float, Field(gt=0)] | None = 300.0
    """Seconds that one sample may take; null for no limit."""
    retry: RetryConfig = RetryConfig()
    """Attempts after an error."""
    cache: CacheConfig = CacheConfig()
    """Reuse of earlier rewards."""
    model: RewardModelSource = RewardModelSource()
    """The reward model."""
    models: dict[str, NamedModel] = Field(default_factory=dict)
    """Several reward models by name, instead of `model`."""
    replicas: Count | None = None
    """Servers of `model`; null for as many as the pool's GPUs hold, or one on a CPU."""
    rollout: RolloutConfig = RolloutConfig()
    """How it is served."""
    server: ServerConfig = ServerConfig()
    """The server processes."""
    router: RouterConfig = RouterConfig()
    """The router in front of them."""
    scoring: ScoringConfig = ScoringConfig()
    """What a model that scores is asked."""
    ensemble: EnsembleConfig = EnsembleConfig()
    """How the scores of several models become one reward."""
    sync: SyncConfig = SyncConfig()
    """How new weights get to the servers, and how old they may be."""

    @model_validator(mode="after")
    def _an_enabled_model_has_a_path(self) -> RewardModelConfig:
        if self.enable and not (self.model.path or self.models):
            raise unmet("model.path", "is needed because a reward model is enabled; name the model or disable it")
        if self.enable and self.model.path and self.models:
            raise unmet("models", "takes the place of model.path; name the models in one of the two")
        return self


class CustomRewardFunctionConfig(Config):
    """The user's own reward function."""

    path: str | None = None
    """File, `file://` or `pkg://a.b` that defines it; the default of each data source without it."""
    name: str = "compute_score"
    """Its name there."""
    reward_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Further keyword arguments of every call."""


class PolicyModelConfig(Config):
    """The policy's tokenizer, with which responses are decoded."""

    path: str | None = None
    """Hugging Face name or directory of the policy."""
    tokenizer_path: str | None = None
    """Its tokenizer, where it is not beside the weights."""
    trust_remote_code: bool = False
    """Whether code that comes with the tokenizer may run."""


class PolicyRolloutConfig(Config):
    """How the policy samples."""

    n: Count = 1
    """Rollouts per prompt: the size of a group."""


class ActorRolloutRefConfig(Config):
    """What the reward loop needs to know of the policy."""

    model: PolicyModelConfig = PolicyModelConfig()
    """The policy."""
    rollout: PolicyRolloutConfig = PolicyRolloutConfig()
    """Its sampling."""


class SandboxConfig(Config):
    """Where and within which limits the programs of code rewards run on this machine."""

    min_level: Annotated[int, Field(ge=0, le=3)] = 1
    """Least isolation: 0 resource limits, 1 a user of its own and system call filters, 2 namespaces, 3 bubblewrap."""
    level: Annotated[int, Field(ge=0, le=3)] | None = None
    """Isolation to use; null for the best of 1 and 2 that this machine offers."""
    max_concurrent: Count | None = None
    """Programs of one worker that run side by side; null for one per core, shared among the workers of a node."""
    timeout_s: Annotated[float, Field(gt=0)] = 10.0
    """Seconds that one test of a program may take."""
    memory_mb: Count = 1024
    """Memory of a program, in MiB."""
    file_mb: Count = 16
    """Size of the files that a program may write, in MiB."""
    max_processes: Count = 16
    """Processes and threads of a program."""
    output_kb: Count = 64
    """Output of a program that is kept, in KiB; what follows is cut off."""
    python: str | None = None
    """Interpreter of the programs, which an unprivileged user must be able to read; null for the first such one."""


class SandboxFusionConfig(Config):
    """The service that runs untrusted code."""

    url: str | None = None
    """Its address; code is run in local processes without it."""
    max_concurrent: Count = 64
    """Requests in flight."""
    memory_limit_mb: Count = 1024
    """Memory of one run."""


class AlgorithmConfig(Config):
    """What the advantage estimator needs from the rewards."""

    gdpo_reward_keys: tuple[str, ...] | None = None
    """Extra-info keys that GDPO normalizes one by one."""
    gdpo_reward_weights: tuple[float, ...] | None = None
    """Weight of each of those keys; all 1 without it."""

    @model_validator(mode="after")
    def _one_weight_per_key(self) -> AlgorithmConfig:
        keys, weights = self.gdpo_reward_keys or (), self.gdpo_reward_weights
        if weights is not None and len(weights) != len(keys):
            raise unmet("gdpo_reward_weights", f"has {len(weights)} weights for {len(keys)} gdpo_reward_keys; give one per key")
        return self


class TrainerConfig(Config):
    """What rewards may depend on in the trainer."""

    experiment_name: Annotated[str, Field(coerce_numbers_to_str=True)] | None = None
    """Name of the experiment, passed to reward functions by gdpo."""


class RewardLoopConfig(Config):
    """All settings of a reward loop."""

    reward_model: RewardModelConfig = RewardModelConfig()
    """How rewards are computed."""
    custom_reward_function: CustomRewardFunctionConfig = CustomRewardFunctionConfig()
    """The user's reward function."""
    actor_rollout_ref: ActorRolloutRefConfig = ActorRolloutRefConfig()
    """The policy."""
    sandbox: SandboxConfig = SandboxConfig()
    """The code sandbox of this machine."""
    sandbox_fusion: SandboxFusionConfig = SandboxFusionConfig()
    """A code sandbox elsewhere, which takes the place of this machine's."""
    algorithm: AlgorithmConfig = AlgorithmConfig()
    """The advantage estimator."""
    trainer: TrainerConfig = TrainerConfig()
    """The trainer."""

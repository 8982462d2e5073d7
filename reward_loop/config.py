"""The settings of a reward loop: their names, types, defaults and limits.

Invariants: a config is validated once, refuses unknown keys and can't be changed afterwards; nothing here reads files
or the environment. `reward_loop.config_loading` builds one from YAML, mappings and overrides, and
`reward_loop.config_spellings` lists the other names under which verl's users know these settings.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

Count = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]
Delay = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]


class Config(BaseModel):
    """One section; `get`, `[name]` and `in` work as on a DictConfig, so that managers of verl run unchanged."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the setting called `name`, or `default` where this section has no such setting."""
        return getattr(self, name) if name in self else default

    def __getitem__(self, name: str) -> Any:
        if name not in self:
            raise KeyError(f"{name} is not in {type(self).__name__}, which has {', '.join(type(self).model_fields)}")
        return getattr(self, name)

    def __contains__(self, name: object) -> bool:
        return name in type(self).model_fields


def unmet(key: str, requirement: str) -> PydanticCustomError:
    """Build the error of a rule that spans settings; `key` (relative to its section) is the one to change."""
    return PydanticCustomError("unmet", "{requirement}", {"key": key, "requirement": requirement})


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


class RewardModelSource(Config):
    """The reward model's weights and tokenizer."""

    path: str | None = None
    """Hugging Face name or directory."""
    tokenizer_path: str | None = None
    """Its tokenizer, where it is not beside the weights."""
    external_lib: str | None = None
    """Module to import before the model is loaded."""
    trust_remote_code: bool = False
    """Whether code that comes with the model may run."""


class RolloutConfig(Config):
    """How the reward model is served."""

    name: str = "vllm"
    """Inference engine."""
    dtype: str = "bfloat16"
    """Type of weights and activations."""
    gpu_memory_utilization: Share = 0.5
    """Share of a GPU's memory that the engine may take."""
    enforce_eager: bool = True
    """Run without CUDA graphs."""
    free_cache_engine: bool = True
    """Put colocated servers to sleep between batches."""
    data_parallel_size: Count = 1
    """Copies of the model in one replica."""
    expert_parallel_size: Count = 1
    """GPUs over which experts are spread."""
    tensor_model_parallel_size: Count = 2
    """GPUs over which each layer is split."""
    pipeline_model_parallel_size: Count = 1
    """Stages into which the layers are divided."""
    max_num_batched_tokens: Count = 8192
    """Tokens in one engine step."""
    max_model_len: Count | None = None
    """Longest prompt plus completion in tokens; the model's own limit without it."""
    max_num_seqs: Count = 1024
    """Sequences in one engine step."""
    load_format: str = "auto"
    """How the engine reads the weights."""
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    """Order in which the engine takes requests."""
    full_determinism: bool = False
    """Make equal requests give equal bits, at the price of speed."""
    seed: int = 42
    """Seed of the engine."""
    engine_kwargs: dict[str, Any] = {}
    """Further arguments of the engine, by engine name."""
    enable_chunked_prefill: bool = True
    """Split long prompts over several steps."""
    enable_prefix_caching: bool = True
    """Reuse the key-value cache of equal beginnings."""
    skip_tokenizer_init: bool = False
    """Start the engine without a tokenizer."""
    temperature: Annotated[float, Field(ge=0)] = 1.0
    """Sampling temperature of a generative reward model."""
    top_k: Annotated[int, Field(ge=-1)] = -1
    """Tokens to sample from; -1 for all."""
    top_p: Share = 1.0
    """Probability mass to sample from."""
    n: Count = 1
    """Completions per request."""
    prompt_length: Count = 2048
    """Tokens of a prompt."""
    response_length: Count = 2048
    """Tokens of a completion."""
    quantization: str | None = None
    """Quantization method."""
    mtp: dict[str, Any] | None = None
    """Multi-token prediction, passed on to the engine."""
    disaggregation: dict[str, Any] = {}
    """Prefill and decode on separate replicas, passed on to the engine."""


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
    reward_manager: RewardManagerConfig = RewardManagerConfig()
    """The manager that scores."""
    reward_kwargs: dict[str, Any] = {}
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
    rollout: RolloutConfig = RolloutConfig()
    """How it is served."""

    @model_validator(mode="after")
    def _an_enabled_model_has_a_path(self) -> RewardModelConfig:
        if self.enable and not self.model.path:
            raise unmet("model.path", "is needed because a reward model is enabled; name the model or disable it")
        return self


class CustomRewardFunctionConfig(Config):
    """The user's own reward function."""

    path: str | None = None
    """File, `file://` or `pkg://a.b` that defines it; the default of each data source without it."""
    name: str = "compute_score"
    """Its name there."""
    reward_kwargs: dict[str, Any] = {}
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
    sandbox_fusion: SandboxFusionConfig = SandboxFusionConfig()
    """The code sandbox."""
    algorithm: AlgorithmConfig = AlgorithmConfig()
    """The advantage estimator."""
    trainer: TrainerConfig = TrainerConfig()
    """The trainer."""

"""The settings of the servers of reward models, of the router in front of them, and of what is asked of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from reward_loop.config_base import Config, Count, Delay, NotNegative, Share, unmet
from reward_loop.config_rollout import RolloutConfig

ModelKind = Literal["auto", "discriminative", "process", "generative"]
Pooling = Literal["LAST", "MEAN", "CLS", "STEP", "ALL"]
Policy = Literal["least_load", "round_robin", "power_of_two", "consistent_hash"]
Seconds = Annotated[float, Field(gt=0)]


class ScoringConfig(Config):
    """What a discriminative or process reward model is asked, and what is made of its answer."""

    pooling: Pooling | None = None
    """Which hidden states the score is read from; null: LAST, or STEP for a process model."""
    step_tag: str | None = None
    """The one token at which a process model scores a step; null: the model's own, as its configuration says."""
    step_separator: str = "\n\n"
    """What separates the steps of a response; the tag is put after each step."""
    label: int = -1
    """Which of the model's labels is the reward (the others go into the extra info); -1: the last, as in verl."""
    normalize: bool = False
    """Give out probabilities (sigmoid or softmax) instead of logits."""
    too_long: Literal["truncate_left", "error"] = "error"
    """What becomes of a conversation longer than the model takes: its beginning is cut off, or its sample is an error."""
    chat_template: str | None = None
    """File of a Jinja chat template, instead of the tokenizer's own."""
    max_batch: Count = 64
    """Samples that travel in one request."""
    max_wait_ms: Delay = 2.0
    """Milliseconds that a sample waits for others to travel with."""
    timeout_s: Seconds = 120.0
    """Seconds that the servers may take for one request, all attempts together."""


class EnsembleConfig(Config):
    """How the scores of several models become one reward."""

    reduce: Literal["mean", "min", "uncertainty"] = "mean"
    """Mean, worst, or mean less `penalty` standard deviations (arXiv:2310.02743)."""
    weights: dict[str, float] = Field(default_factory=dict)
    """Weight of each model by name in the mean and the deviation; 1 where it is not named."""
    penalty: Delay = 1.0
    """Standard deviations that `uncertainty` subtracts."""


class ServerConfig(Config):
    """The server processes on whatever machine they run."""

    device: Literal["auto", "cuda", "cpu"] = "auto"
    """What the model runs on; auto: CUDA where there is a device, else the CPU."""
    host: str = "127.0.0.1"
    """Address to listen on; with Ray on several machines, each node's own address takes its place."""
    start_timeout_s: Seconds = 600.0
    """Seconds until a server must be ready."""
    stop_timeout_s: Seconds = 5.0
    """Seconds that a server may take to end before it is killed."""
    memory_mb: Count | None = None
    """Main memory that a server and its processes may take together, in MiB; null for no bound."""
    cpu_kv_cache_mb: Count = 256
    """Size of the key-value cache of a server on the CPU, in MiB."""
    sleep_level: Literal[1, 2] = 1
    """What sleep gives up: 1 keeps the weights aside, 2 drops them (they must be synced before the next use)."""
    max_restarts: NotNegative = 10
    """Crashes in a row after which a server is given up."""
    restart_backoff_s: Delay = 1.0
    """Seconds before the first restart; doubles up to a minute with each crash in a row."""
    log_dir: str | None = None
    """Directory of the servers' logs; null for one in the temporary directory, named in the log."""


class RouterConfig(Config):
    """The router: one address in front of all servers."""

    policy: Policy = "least_load"
    """Who gets a request: the least in flight by measured latency, each in turn, the better of two, or by affinity."""
    affinity: Literal["body", "prefix", "session"] = "prefix"
    """What consistent_hash looks at: the whole body, its first `affinity_bytes`, or the header X-Session-Id (else the body)."""
    affinity_bytes: Count = 1024
    """Bytes at the beginning of a body that count as its prefix."""
    host: str = "127.0.0.1"
    """Address to listen on; IPv6 addresses without brackets."""
    port: NotNegative = 0
    """Port; 0 for a free one."""
    total_timeout_s: Seconds = 600.0
    """Seconds from a request's arrival to its reply, all attempts and waiting included."""
    attempt_timeout_s: Seconds = 120.0
    """Seconds that one server may take to answer before another one is asked."""
    connect_timeout_s: Seconds = 2.0
    """Seconds to connect to a server."""
    retries: NotNegative = 3
    """Servers that are asked beyond the first."""
    retry_budget: Share = 0.2
    """Retries and hedges as a share of all requests, beyond the first few."""
    hedge_quantile: Share | None = None
    """Send a second copy of a request that takes longer than this share of the recent ones, e.g. 0.95; null: never."""
    health_interval_s: Seconds = 0.5
    """Seconds between two health checks of a server."""
    health_timeout_s: Seconds = 2.0
    """Seconds that a health check may take."""
    eject_after: Count = 3
    """Failures in a row after which a server gets no more requests until it answers a health check."""
    max_in_flight: Count | None = None
    """Requests that one server gets at a time; null for no limit."""
    max_queue: Count = 4096
    """Requests that wait for a server; what comes beyond gets 429 with Retry-After."""
    max_body_mb: Count = 64
    """Size of a request's body, in MiB; larger ones get 413."""
    token_env: str | None = None
    """Environment variable with the bearer token that clients must show; null: none."""
    admin_token_env: str | None = None
    """Environment variable with the token of /admin; null: one made at the start, known to the reward loop only."""
    server_token_env: str | None = None
    """Environment variable with the bearer token that the servers want; null: what the client sent is passed on."""


class NamedModel(Config):
    """One of several reward models behind one router."""

    path: str
    """Hugging Face name or directory."""
    tokenizer_path: str | None = None
    """Its tokenizer, where it is not beside the weights."""
    kind: ModelKind = "auto"
    """What it gives: a score, a score per step, or text; auto: what its configuration's architecture says."""
    replicas: Count | None = None
    """Servers of this model; null for one."""
    trust_remote_code: bool = False
    """Whether code that comes with the model may run."""
    rollout: dict[str, Any] = Field(default_factory=dict)
    """Settings of `reward_model.rollout` that differ for this model."""
    scoring: dict[str, Any] = Field(default_factory=dict)
    """Settings of `reward_model.scoring` that differ for this model."""

    @model_validator(mode="after")
    def _what_differs_is_known(self) -> NamedModel:
        for name, known in (("rollout", RolloutConfig), ("scoring", ScoringConfig)):
            for key in getattr(self, name):
                if key not in known.model_fields:
                    raise unmet(f"{name}.{key}", f"is no setting of reward_model.{name}; it has {sorted(known.model_fields)}")
        return self

"""Settings that all three loops have: the model, the service that trains it, the optimiser, and where a run is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from reward_loop.config_base import Config, Count, NotNegative
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.remote.settings import HttpSettings
from reward_loop.rinker.runtime.settings import RuntimeSettings
from reward_loop.rinker.types import AdamParams, LoraConfig, ModelSpec

Momentum = Annotated[float, Field(ge=0, lt=1)]
Amount = Annotated[float, Field(ge=0)]
AboveZero = Annotated[float, Field(gt=0)]


class LoraSettings(Config):
    """Low-rank adapters."""

    rank: Count = 32
    """Their rank."""
    alpha: AboveZero = 32.0
    """Their scale, times 1 / rank."""
    train_mlp: bool = True
    """Whether the feed-forward layers have some."""
    train_attn: bool = True
    """Whether the attention layers have some."""
    train_unembed: bool = True
    """Whether the output layer has one."""


class ModelConfig(Config):
    """The model in training."""

    base_model: str
    """A directory or a name of the Hugging Face hub."""
    lora: LoraSettings | None = None
    """Train adapters; null: all weights."""
    seed: NotNegative | None = 0
    """Of what is drawn when adapters or a head are new."""

    def spec(self, kind: Literal["causal_lm", "seq_cls"]) -> ModelSpec:
        """Return it as the service takes it."""
        lora = None if self.lora is None else LoraConfig(seed=self.seed, **self.lora.model_dump())
        return ModelSpec(self.base_model, kind, lora, seed=self.seed)


class ServiceConfig(Config):
    """Where the model is trained and sampled from."""

    base_url: str | None = None
    """A training service that is reached by HTTP; null: one in this process."""
    http: HttpSettings = HttpSettings()
    """How patient the run is with that."""
    restarts: NotNegative = 3
    """Times that a run goes on from its last checkpoint once that server is lost; counted anew with each checkpoint."""
    checkpoints: str | None = None
    """Directory of the weights that a service of this process saves; null: `weights` in the run's directory."""
    engine: EngineSettings = EngineSettings()
    """How a service of this process holds and computes the model."""
    runtime: RuntimeSettings = RuntimeSettings()
    """Where it has its learner and its samplers: in this process, on Ray, on vLLM servers."""


class AdamConfig(Config):
    """The optimiser: AdamW, and what becomes of its learning rate."""

    learning_rate: AboveZero = 1e-4
    """The highest one."""
    beta1: Momentum = 0.9
    """Share of the gradients' mean that is kept."""
    beta2: Momentum = 0.95
    """Share of the squared gradients' mean that is kept."""
    eps: AboveZero = 1e-12
    """Added to the root of the latter."""
    weight_decay: Amount = 0.0
    """Decoupled from the gradients."""
    grad_clip_norm: Amount = 0.0
    """The gradients' norm is clipped to this; 0: it is not."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """What the learning rate does after the warm-up: stay, or fall to 0 at the end."""
    warmup_steps: NotNegative = 0
    """Steps in which it rises to its highest."""

    def params(self, step: int, steps: int) -> AdamParams:
        """Return what step `step` (from 0) of `steps` is made with."""
        from reward_loop.rinker.loops.learning_rate import factor

        rate = self.learning_rate * factor(self.schedule, step, steps, self.warmup_steps)
        return AdamParams(rate, self.beta1, self.beta2, self.eps, self.weight_decay, self.grad_clip_norm)


class LoggerConfig(Config):
    """One more place where the metrics of each step go."""

    backend: Literal["tensorboard", "wandb", "mlflow", "jsonl"]
    """Which."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Its own settings, such as `project` or `path`."""


class LoopConfig(Config):
    """What every loop is told."""

    log_path: Path
    """Directory of the run: metrics.jsonl, checkpoints.jsonl, config.json. A run that is there already goes on."""
    model: ModelConfig
    """What is trained."""
    service: ServiceConfig = ServiceConfig()
    """Where."""
    adam: AdamConfig = AdamConfig()
    """How."""
    renderer: str | None = None
    """Which chat template is written; null: the one that the model's tokenizer has."""
    epochs: Count = 1
    """How often the data is gone through."""
    max_steps: Count | None = None
    """Steps after which to stop; null: all of them."""
    save_every: NotNegative = 20
    """Steps between two checkpoints; 0: at the end only."""
    eval_every: NotNegative = 20
    """Steps between two evaluations; 0: at the end only."""
    loggers: tuple[LoggerConfig, ...] = ()
    """Where metrics go besides metrics.jsonl."""
    seed: NotNegative = 0
    """Of the order of the data and of all that is sampled."""

    def due(self, every: int, done: int, steps: int) -> bool:
        """Whether something that happens every so many steps happens after `done` of `steps`."""
        return done == steps or (every > 0 and done % every == 0)

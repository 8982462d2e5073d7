"""The settings of reinforcement learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from reward_loop.config_base import Config, Count, NotNegative, unmet
from reward_loop.credit.aggregation import Aggregation
from reward_loop.credit.algorithm import LossName
from reward_loop.credit.normalization import Normalization, Scale
from reward_loop.errors import RequestFailedError
from reward_loop.rinker.loops.config import Amount, LoopConfig
from reward_loop.rinker.rl.presets import PresetName, with_preset

Seconds = Annotated[float, Field(gt=0)]


class DataConfig(Config):
    """Where environments come from: a builder of yours, or problems in a file."""

    builder: str | None = None
    """File, `file://` or `pkg://a.b` with a function that returns an RLDatasetBuilder (or the function `name` of it)."""
    name: str = "dataset_builder"
    """The function; it gets batch_size, group_size, seed, tokenizer, renderer and `kwargs`, by name, as far as it takes them."""
    kwargs: dict[str, Any] = Field(default_factory=dict)
    """What else it is given."""
    problems: str | None = None
    """JSON Lines of problems, instead of a builder: the answer is right if the reward loop, or a comparison, says so."""
    test_problems: str | None = None
    """Those to evaluate on."""
    question_field: str = "question"
    """Where the question stands."""
    answer_field: str = "answer"
    """Where the right answer stands."""

    @model_validator(mode="after")
    def _one_source(self) -> DataConfig:
        if (self.builder is None) == (self.problems is None):
            raise unmet("builder", "needs exactly one of builder (code) and problems (a file)")
        return self


class AdvantageConfig(Config):
    """What rewards are divided by, after the mean of the group was subtracted."""

    scale: Scale = "none"
    """The std of the group, of the batch, or nothing."""
    ddof: Literal[0, 1] = 1
    """1: the sample's std; 0: the population's."""
    eps: Amount = 1e-6
    """Added to the std."""

    def normalization(self) -> Normalization:
        """Return it as credit assignment takes it."""
        return Normalization("group", self.scale, self.ddof, self.eps)


class KLConfig(Config):
    """What distance from the base model costs. Both penalties may be used together; 0 is none."""

    reward_coef: Amount = 0.0
    """beta: R - beta * sum of d over the episode, before centring."""
    token_coef: Amount = 0.0
    """c: c * (mean of d over the batch - d) is added to each token's advantage."""
    token_discount: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Of the penalties of later tokens, which are added to the earlier ones' if this is not 0."""
    reference: str | None = None
    """Weights that are the reference (`tinker://…`); null: the base model."""

    @property
    def any(self) -> bool:
        """Whether there is a penalty."""
        return self.reward_coef > 0 or self.token_coef > 0


class OverlongConfig(Config):
    """DAPO's penalty for answers that come near the limit of `max_tokens`; an episode pays for its longest one."""

    buffer_tokens: Count | None = None
    """Tokens before the limit at which it begins; null: a fifth of the limit."""
    factor: Amount = 1.0
    """The penalty at the limit."""

    def buffer(self, max_tokens: int) -> int:
        """Return how many tokens before this limit it begins."""
        return max(1, max_tokens // 5) if self.buffer_tokens is None else self.buffer_tokens


class StreamConfig(Config):
    """Learn from groups as they come, while others are still sampled and scored."""

    num_minibatches: Count = 4
    """Parts of each substep; the optimiser steps once all of them are in."""


class FailureConfig(Config):
    """How often something that failed is tried again, and what becomes of a group that goes on failing."""

    sample_attempts: Count = 3
    """Times one call of a sampler (for an answer, or for log-probabilities) is made, the first included."""
    group_attempts: Count = 2
    """Times a group is played, in new environments, when one of them raises or takes too long."""
    reward_attempts: Count = 2
    """Times the rewards of a group are computed; the reward loop has retries of its own (`reward_model.retry`)."""
    backoff_s: Amount = 0.5
    """Seconds before the second attempt; doubles with each further one."""
    sample_timeout_s: Seconds = 600.0
    """Seconds that one call of a sampler may take."""
    env_timeout_s: Seconds = 600.0
    """Seconds that one call of an environment or of a group's rewards may take."""
    on_group_failure: Literal["raise", "drop"] = "raise"
    """raise: the run ends; drop: the group counts as trained, and teaches nothing."""


class RewardConfig(Config):
    """Whose rewards count."""

    reward_loop: dict[str, Any] | None = None
    """Configuration of the reward loop (`reward_model`, `custom_reward_function`, …) or null: the environment's rewards alone."""
    use_reward_loop: bool | None = None
    """Overrides `reward_model.use_reward_loop`; false: one sample after the other in this process, with the same rewards."""
    combine: Literal["replace", "add"] = "replace"
    """replace: the reward loop's rewards instead of the environment's; add: both."""


class EvaluationConfig(Config):
    """How the policy is evaluated."""

    temperature: Amount = 0.0
    """0: greedy."""
    samples: Count = 1
    """Times each test problem is tried, if the data's builder does not say."""
    pass_reward: float = 1.0
    """Reward from which an episode has passed, where it has no metric "correct"."""


class RLConfig(LoopConfig):
    """A run of reinforcement learning; settings of a `preset` hold where nothing else is said."""

    data: DataConfig
    """The environments."""
    preset: PresetName | None = None
    """grpo, dr_grpo or dapo."""
    batch_size: Count = 32
    """Groups (problems) of one step."""
    group_size: Count = 8
    """Episodes of each."""
    num_substeps: Count = 1
    """Updates of the weights per step; each group is in exactly one of them."""
    max_tokens: Count = 256
    """Tokens of one answer."""
    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Of what is sampled for training."""
    loss_fn: LossName = "importance_sampling"
    """Which loss."""
    loss_fn_config: dict[str, float] = Field(default_factory=dict)
    """Its settings, e.g. clip_high_threshold."""
    advantage: AdvantageConfig = AdvantageConfig()
    """From rewards to advantages."""
    aggregation: Aggregation = "token-sum"
    """How the losses of tokens are averaged."""
    kl: KLConfig = KLConfig()
    """What distance from the base model costs."""
    overlong: OverlongConfig | None = None
    """What long answers cost."""
    remove_constant_reward_groups: bool = False
    """Leave out groups whose rewards are all the same."""
    stream: StreamConfig | None = None
    """Overlap sampling, scoring and learning within a step."""
    max_steps_off_policy: NotNegative = 0
    """K: sampling runs ahead by up to K steps; what is older when it is trained on is discarded and sampled again."""
    max_rollouts_in_flight: Count = 1024
    """Episodes that are sampled at a time; a group is not begun before all of it fits."""
    rewards: RewardConfig = RewardConfig()
    """Whose rewards count."""
    failures: FailureConfig = FailureConfig()
    """What becomes of failures."""
    evaluation: EvaluationConfig = EvaluationConfig()
    """How the policy is evaluated."""
    post_kl: bool = False
    """Measure how far each step moved the policy (`kl_pre_post_v1`), which takes one more pass."""

    @model_validator(mode="before")
    @classmethod
    def _apply_the_preset(cls, value: object) -> object:
        return with_preset(value) if isinstance(value, Mapping) else value

    @model_validator(mode="after")
    def _fits_together(self) -> RLConfig:
        parts = self.parts
        if self.batch_size % parts:
            raise unmet("batch_size", f"must be a multiple of num_substeps * stream.num_minibatches = {parts}")
        buffer = None if self.overlong is None else self.overlong.buffer_tokens
        if buffer is not None and buffer > self.max_tokens:
            limit = f"overlong.buffer_tokens={buffer} must not be above max_tokens={self.max_tokens}"
            raise unmet("overlong.buffer_tokens", f"{limit}: the penalty begins that many tokens before the limit")
        if self.stream is not None:
            needs_all = {
                "advantage.scale": self.advantage.scale == "batch",
                "aggregation": self.aggregation != "token-sum",
                "kl.token_coef": self.kl.token_coef > 0,
            }
            for key in (key for key, needed in needs_all.items() if needed):
                raise unmet(
                    key, "is over the whole batch, which a streaming step never has at hand; change it, or set stream=null"
                )
        return self

    @model_validator(mode="after")
    def _a_loss_of_advantages(self) -> RLConfig:
        from reward_loop.rinker.losses.registry import TOKEN_LOSSES  # here: it loads torch
        from reward_loop.rinker.losses.settings import loss_settings

        loss = TOKEN_LOSSES[self.loss_fn]
        if "advantages" not in loss.required:
            fit = ", ".join(name for name, one in TOKEN_LOSSES.items() if "advantages" in one.required)
            raise unmet("loss_fn", f"loss_fn={self.loss_fn} reads no advantages; use one of {fit}")
        try:
            loss_settings(loss.name, loss.settings, self.loss_fn_config)
        except RequestFailedError as error:
            raise unmet("loss_fn_config", error.message) from error
        return self

    @property
    def parts(self) -> int:
        """Into how many parts a step's groups are cut."""
        return self.num_substeps * (1 if self.stream is None else self.stream.num_minibatches)

"""The reward function of the served models that the configuration names.

Invariant: what is wrong with the models, their templates or what is asked of them is a ConfigError here, before any sample.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from reward_loop.config import RewardLoopConfig, RewardModelConfig
from reward_loop.config_models import ServedModel, served_models
from reward_loop.errors import ConfigError
from reward_loop.functions.chat_template import ChatTemplate
from reward_loop.functions.discriminative import DiscriminativeReward
from reward_loop.functions.ensemble import EnsembleReward, Reduction
from reward_loop.functions.process_reward import ProcessReward
from reward_loop.functions.scored_conversation import ScoredModel
from reward_loop.functions.truncation import Fit
from reward_loop.scoring.model_kind import DEFAULT_STEP_TAG, context_length, read_model_config, resolve_kind
from reward_loop.scoring.vllm_client import VLLMRewardClient

LoadTokenizer: TypeAlias = Callable[[str, bool], Any]
"""Returns the tokenizer of a path, given whether its code may run; a new object each time."""

ModelReward: TypeAlias = Callable[..., Awaitable[dict[str, Any]]]
"""A reward function that asks models."""


def model_reward(config: RewardLoopConfig, router_address: str, load_tokenizer: LoadTokenizer) -> ModelReward:
    """Return the reward function of the served models behind `router_address` ("host:port"), async, of keyword arguments.

    It holds threads and connections: build one where samples are scored. ConfigError for a model that only writes text, for an
    ensemble of other than discriminative models, and for a tokenizer without what is needed.
    """
    settings = config.reward_model
    models = _scoring(_resolved(settings))
    if len(models) == 1:
        return _single(models[0], config, router_address, load_tokenizer)
    members = [_discriminative(model, settings, router_address, load_tokenizer) for model in models]
    ensemble = settings.ensemble
    return EnsembleReward(members, Reduction(ensemble.reduce, ensemble.weights, ensemble.penalty))


def check_model_reward(config: RewardLoopConfig) -> None:
    """Raise ConfigError where `model_reward` would for the kinds of the models, before any of them is served."""
    _scoring(_resolved(config.reward_model))


def _scoring(models: list[ServedModel]) -> list[ServedModel]:
    """Return the models; ConfigError unless they give one reward together."""
    for model in models:
        if model.kind == "generative":
            raise ConfigError(
                f"the reward model {model.name} writes text, and nothing says what reward a text is: "
                "set custom_reward_function.path to a function that asks it (it gets reward_router_address)"
            )
    steps = [model.name for model in models if model.kind == "process"]
    if steps and len(models) > 1:
        raise ConfigError(
            f"the process models {steps} give a score per step, and an ensemble is of one score per model: "
            "leave them out, or combine the models in a function (custom_reward_function.path)"
        )
    return models


def _resolved(settings: RewardModelConfig) -> list[ServedModel]:
    """Return the models with their kinds."""
    return [replace(model, kind=resolve_kind(model.kind, model.path)) for model in served_models(settings)]


def _single(model: ServedModel, config: RewardLoopConfig, router_address: str, load_tokenizer: LoadTokenizer) -> ModelReward:
    settings = config.reward_model
    if model.kind == "discriminative":
        return _discriminative(model, settings, router_address, load_tokenizer)
    tag = model.scoring.step_tag or DEFAULT_STEP_TAG
    policy = config.actor_rollout_ref.model
    path = policy.tokenizer_path or policy.path
    return ProcessReward(
        _scored(model, settings, router_address, load_tokenizer, tag),
        tag,
        model.scoring.step_separator,
        label=model.scoring.label,
        tokenizer=load_tokenizer(path, policy.trust_remote_code) if path else None,
    )


def _discriminative(
    model: ServedModel, settings: RewardModelConfig, router_address: str, load_tokenizer: LoadTokenizer
) -> DiscriminativeReward:
    return DiscriminativeReward(_scored(model, settings, router_address, load_tokenizer), model.scoring.label)


def _scored(
    model: ServedModel, settings: RewardModelConfig, router_address: str, load_tokenizer: LoadTokenizer, tag: str | None = None
) -> ScoredModel:
    scoring = model.scoring
    tokenizer = load_tokenizer(model.tokenizer_path, model.trust_remote_code)
    client = VLLMRewardClient(
        address=router_address,
        model_name=model.name,
        timeout_s=scoring.timeout_s,
        max_batch=scoring.max_batch,
        max_wait_ms=scoring.max_wait_ms,
        pooling_type="STEP" if tag else scoring.pooling or "LAST",  # named, because some servers can give several
        api_key_env=settings.router.token_env,
        max_staleness=settings.sync.max_staleness,
        on_stale=settings.sync.on_stale,
    )
    limit = model.rollout.max_model_len or _own_limit(read_model_config(model.path), tokenizer)
    template = ChatTemplate(tokenizer, scoring.chat_template, tag)
    return ScoredModel(model.name, template, client, Fit(limit, scoring.too_long), scoring.normalize)


def _own_limit(config: Mapping[str, Any], tokenizer: Any) -> int | None:
    """Return the most tokens that vLLM lets the model have without max_model_len; None where nothing says."""
    given = [length for length in (context_length(config), tokenizer.model_max_length) if length is not None]
    return min((length for length in given if length < 1 << 40), default=None)  # transformers knows no limit as 10**30

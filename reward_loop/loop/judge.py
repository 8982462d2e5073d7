"""Building what a worker scores with, from the configuration: tokenizers, the reward function, the reward manager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reward_loop.config import RewardLoopConfig
from reward_loop.errors import ConfigError, RewardLoopError
from reward_loop.functions.custom import OFFERED_WITH_MODEL, adapt, load_function
from reward_loop.functions.model_reward import model_reward
from reward_loop.functions.rules import default_compute_score
from reward_loop.functions.tokenizers import load_tokenizer
from reward_loop.managers.base import RewardManagerBase
from reward_loop.managers.cache import judge_key, open_store, with_cache
from reward_loop.managers.deadline import with_deadline
from reward_loop.managers.job import Job
from reward_loop.managers.rate_limit import with_rate_limit
from reward_loop.managers.registry import resolve_reward_manager_cls
from reward_loop.managers.retry import with_retry
from reward_loop.managers.scorer import Scorer, scorer_of
from reward_loop.outcome import describe


def reward_function(
    config: RewardLoopConfig, compute_score: Callable[..., Any] | None = None, manager_class: type | None = None
) -> Callable[..., Any]:
    """Return the reward function: the object that was passed, the user's by path, the served model's, or the default rules.

    That of the served model is `model_reward` itself, which makes it once the router has an address. A manager that asks models
    itself never gets it. `manager_class` takes the place of the manager that the configuration names.
    """
    if compute_score is not None:
        return compute_score
    custom = config.custom_reward_function
    if custom.path:
        return load_function(custom.path, custom.name)
    if not config.reward_model.enable:
        return default_compute_score
    manager_class = manager_class or resolve_reward_manager_cls(config.reward_model.reward_manager)
    return default_compute_score if getattr(manager_class, "asks_itself", False) else model_reward


def build_manager(
    config: RewardLoopConfig,
    reward_router_address: str | None = None,
    compute_score: Callable[..., Any] | None = None,
    manager_class: type | None = None,
    job: Job | None = None,
) -> RewardManagerBase:
    """Return the reward manager, checked; every mistake in the configuration or the user's files is a ConfigError.

    `compute_score` and `manager_class` take the place of what the configuration names; `job` is what it works for.
    """
    manager_class = manager_class or resolve_reward_manager_cls(config.reward_model.reward_manager)
    offered = getattr(manager_class, "offered", RewardManagerBase.offered)
    if reward_router_address:
        offered |= OFFERED_WITH_MODEL
    function = reward_function(config, compute_score, manager_class)
    if function is model_reward:
        function = model_reward(config, _given(reward_router_address), load_tokenizer)
    policy_model = config.actor_rollout_ref.model
    manager = _built(
        manager_class,
        config,
        load_tokenizer(policy_model.tokenizer_path or policy_model.path, policy_model.trust_remote_code),
        adapt(function, config.custom_reward_function.reward_kwargs, offered),
        reward_router_address=reward_router_address,
        reward_model_tokenizer=_reward_model_tokenizer(config) if reward_router_address else None,
    )
    manager.job = job or manager.job
    manager.check()
    return manager


def _given(reward_router_address: str | None) -> str:
    if reward_router_address is None:
        raise ConfigError("a reward model is enabled, but this worker got no reward_router_address: build a RewardLoopManager")
    return reward_router_address


def _reward_model_tokenizer(config: RewardLoopConfig) -> Any:
    """Return the tokenizer of the reward model, of several the first."""
    model = next(iter(config.reward_model.models.values()), config.reward_model.model)
    return load_tokenizer(model.tokenizer_path or model.path, model.trust_remote_code)


def _built(manager_class: type, *args: Any, **kwargs: Any) -> RewardManagerBase:
    if not issubclass(manager_class, RewardManagerBase):
        raise ConfigError(f"reward manager {manager_class.__qualname__} must inherit from reward_loop.RewardManagerBase")
    try:
        return manager_class(*args, **kwargs)
    except RewardLoopError:
        raise
    except Exception as error:  # a user's class may raise anything
        raise ConfigError(
            f"reward manager {manager_class.__qualname__} can't be built: {describe(error)}; its constructor gets "
            "(config, tokenizer, compute_score, reward_router_address=…, reward_model_tokenizer=…)"
        ) from error


def build_scorer(manager: RewardManagerBase) -> Scorer:
    """Return the manager's scorer with the deadline, rate limit, retries and cache that the configuration asks for."""
    settings = manager.config.reward_model
    scorer = scorer_of(manager)
    if settings.timeout_s is not None:
        scorer = with_deadline(scorer, settings.timeout_s)
    if settings.rate_limit.limited:
        scorer = with_rate_limit(scorer, manager.limiter)
    if settings.retry.attempts > 1:
        scorer = with_retry(scorer, settings.retry)
    if settings.cache.enable:
        key = judge_key(manager.config, manager.compute_score, type(manager), files=manager.files)
        scorer = with_cache(scorer, open_store(settings.cache), key)
    return scorer

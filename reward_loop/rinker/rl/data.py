"""What the configuration names: the environments, and whose rewards count."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

from reward_loop.errors import ConfigError, RewardLoopError
from reward_loop.functions.custom import load_module
from reward_loop.rinker.loops.renderer import renderer_of
from reward_loop.rinker.rl.config import RLConfig
from reward_loop.rinker.rl.problems import ProblemsBuilder
from reward_loop.rinker.rl.rewards import EpisodeScorer, NoScorer
from reward_loop.rinker.rl.types import RLDatasetBuilder

logger = logging.getLogger(__name__)


class HasTokenizer(Protocol):
    """A client of either kind."""

    def get_tokenizer(self) -> Any:
        """Return the base model's tokenizer."""
        ...


def dataset_builder(config: RLConfig, client: HasTokenizer) -> RLDatasetBuilder:
    """Return the builder that `config.data` names. Raises ConfigError for one that can't be made."""
    data = config.data
    if data.problems is not None:
        renderer = renderer_of(config.renderer, client.get_tokenizer())
        return ProblemsBuilder(config, renderer)
    return _from_code(config, client)


@asynccontextmanager
async def open_scorer(config: RLConfig, client: HasTokenizer) -> AsyncGenerator[EpisodeScorer]:
    """Start the reward loop where one is configured."""
    rewards = config.rewards
    loop = _reward_loop(config)
    if loop is None:
        yield NoScorer()
        return
    from reward_loop.rinker.rl.reward_loop_rewards import RewardLoopRewards

    opened = RewardLoopRewards.open(loop, _tokenizer(client), use_reward_loop=rewards.use_reward_loop, combine=rewards.combine)
    async with opened as scorer:
        yield scorer


def _reward_loop(config: RLConfig) -> Mapping[str, Any] | None:
    """Return the reward loop's configuration, with the actors that the runtime wants for it."""
    loop, runtime = config.rewards.reward_loop, config.service.runtime
    if runtime.rewards is None:
        return loop
    if loop is None:
        raise ConfigError(
            f"service.runtime.rewards={runtime.rewards} wants actors for rewards; give rewards.reward_loop, or leave it out"
        )
    from reward_loop.rinker.runtime.ray_calls import connect
    from reward_loop.rinker.runtime.reward_actors import on_ray

    connect(runtime.ray_address)
    return on_ray(loop, runtime.rewards)


def _tokenizer(client: HasTokenizer) -> Any:
    try:
        return client.get_tokenizer()
    except (RewardLoopError, OSError, ValueError) as error:
        # A model of bare tokens has none.
        logger.warning("the model has no tokenizer: the reward loop is given token ids: %s", error)
        return None


def _from_code(config: RLConfig, client: HasTokenizer) -> RLDatasetBuilder:
    path, name = str(config.data.builder), config.data.name
    function = getattr(load_module(path), name, None)
    if not callable(function):
        raise ConfigError(f"data.builder={path} has no function {name!r}; set data.name")
    parameters = inspect.signature(function).parameters
    offered = {"batch_size": config.batch_size, "group_size": config.group_size, "seed": config.seed, **config.data.kwargs}
    if not parameters.keys().isdisjoint({"tokenizer", "renderer"}):
        tokenizer = client.get_tokenizer()
        offered["tokenizer"] = tokenizer
        if "renderer" in parameters:
            offered["renderer"] = renderer_of(config.renderer, tokenizer)
    taken = _taken(offered, parameters, path, name, config.data.kwargs)
    builder = function(**taken)
    if not isinstance(builder, RLDatasetBuilder):
        raise ConfigError(f"{name} of {path} returned a {type(builder).__name__}; it must return an RLDatasetBuilder")
    return builder


def _taken(
    offered: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter], path: str, name: str, own: Mapping[str, Any]
) -> dict[str, Any]:
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return dict(offered)
    if unknown := sorted(own.keys() - parameters.keys()):
        raise ConfigError(
            f"{name} of {path} takes no {', '.join(unknown)}, given in data.kwargs; it takes {', '.join(parameters)}"
        )
    missing = [key for key, one in parameters.items() if one.default is one.empty and key not in offered]
    if missing:
        raise ConfigError(f"{name} of {path} needs {', '.join(missing)}; give it in data.kwargs")
    return {key: value for key, value in offered.items() if key in parameters}

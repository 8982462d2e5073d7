"""Built-in rubrics that call what the reward loop scores with anyway: rule functions, the custom function, the reward model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from reward_loop.errors import ConfigError, DataError
from reward_loop.functions.rules import default_compute_score, rule_for
from reward_loop.rubrics.adapters import as_rubric
from reward_loop.rubrics.catalogue import Factory
from reward_loop.rubrics.resources import Resources
from reward_loop.rubrics.rubric import Rubric


def rule(config: Mapping[str, Any], resources: Resources) -> Rubric:
    """Return the rule function of the sample's data source, or of `data_source`; the rest of the config are its options."""
    if "data_source" in config:
        try:
            rule_for(config["data_source"])  # now, not at the first sample
        except DataError as error:
            raise ConfigError(error.message) from error
    return _in_the_loop(default_compute_score, config, resources)


def custom(config: Mapping[str, Any], resources: Resources) -> Rubric:
    """Return the custom reward function; the config holds keyword arguments for it."""
    if resources.custom_function is None:
        raise ConfigError("builtin.custom calls the custom reward function, and there is none; set custom_reward_function.path")
    return _in_the_loop(resources.custom_function, config, resources)


def reward_model(config: Mapping[str, Any], resources: Resources) -> Rubric:
    """Return the discriminative reward model that is served."""
    if resources.reward_model is None:
        raise ConfigError("builtin.reward_model asks a discriminative reward model, and none is served; set reward_model.enable")
    return _function(resources.reward_model, config, resources)


def _in_the_loop(function: Callable[..., Any], config: Mapping[str, Any], resources: Resources) -> Rubric:
    run = None if resources.in_the_loop is None else resources.in_the_loop(function, config)
    return _function(function, config, resources) if run is None else as_rubric(run)


def _function(function: Callable[..., Any], config: Mapping[str, Any], resources: Resources) -> Rubric:
    offered = {"sandbox": resources.sandbox, "reward_router_address": resources.router_address}
    return as_rubric(function, config=config, offered={name: value for name, value in offered.items() if value is not None})


FACTORIES: dict[str, Factory] = {
    "builtin.rule": rule,
    "builtin.custom": custom,
    "builtin.reward_model": reward_model,
}

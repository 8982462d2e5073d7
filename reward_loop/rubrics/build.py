"""From a configuration to the rubrics that it names, and the pipeline that they make."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias

from reward_loop.errors import ConfigError
from reward_loop.rubrics.adapters import as_rubric
from reward_loop.rubrics.blocking_judges import BlockingJudges
from reward_loop.rubrics.catalogue import builtin_factory, find_rubric
from reward_loop.rubrics.pipeline import ComposerOptions, RubricPipeline
from reward_loop.rubrics.resources import Resources
from reward_loop.rubrics.reward_config import RewardConfig, RubricEntry
from reward_loop.rubrics.rubric import Rubric
from reward_loop.rubrics.update import Applies

Builder: TypeAlias = Callable[[Mapping[str, Any]], Rubric]
"""Makes a rubric of its settings; asked again when they change."""


def build_pipeline(
    config: RewardConfig | Mapping[str, Any],
    resources: Resources | None = None,
    *,
    allowed_prefixes: Iterable[str] = (),
    apply: Applies = "next_reset",
    normalize: bool | Literal["running"] = True,
    aggregate: Literal["sum", "mean"] = "sum",
    strict: bool = False,
    skip_zero_weight: bool = False,
    max_concurrency: int | None = None,
) -> RubricPipeline:
    """Build every rubric and compose them; ConfigError that names the rubric which can't be built.

    `apply` is when updates take effect that don't say; the rest is as in `RubricComposer`.
    """
    loaded = RewardConfig.load(config)
    prefixes = tuple(allowed_prefixes)
    builders = {entry.name: builder_of(entry, resources or Resources(), prefixes) for _, entry in loaded.entries()}
    options = ComposerOptions(normalize, aggregate, strict, skip_zero_weight, max_concurrency)
    return RubricPipeline(loaded, builders, options, apply)


def builder_of(entry: RubricEntry, resources: Resources, allowed_prefixes: Iterable[str] = ()) -> Builder:
    """Return what makes an entry's rubric; its code is found now, and only now."""
    try:
        make = _maker(entry.rubric, resources, allowed_prefixes)
    except ConfigError as error:
        raise ConfigError(f"rubric {entry.name}: {error.message}") from error
    return functools.partial(_built, entry.name, make)


def _maker(spec: str, resources: Resources, allowed_prefixes: Iterable[str]) -> Builder:
    factory = builtin_factory(spec)
    if factory is not None:
        return functools.partial(_from_factory, factory, resources)
    thing, offered = find_rubric(spec, allowed_prefixes), _offered(resources)
    return lambda config: as_rubric(thing, config=config, offered=offered)


def _from_factory(
    factory: Callable[[Mapping[str, Any], Resources], Rubric], resources: Resources, config: Mapping[str, Any]
) -> Rubric:
    return factory(config, resources)


def _built(name: str, make: Builder, config: Mapping[str, Any]) -> Rubric:
    # The scale is the composer's, which places what the rubric gives.
    settings = {key: value for key, value in config.items() if key != "scale"}
    try:
        return make(settings)
    except ConfigError as error:
        raise ConfigError(f"rubric {name}: {error.message}") from error


def _offered(resources: Resources) -> dict[str, Any]:
    """What a rubric's constructor gets if it has a parameter of this name."""
    blocking = None if resources.judges is None else BlockingJudges(resources.judges)
    offered = {
        "resources": resources,
        "judges": resources.judges,
        "mcp": blocking,
        "mcp_client": blocking,
        "reward_model": resources.reward_model,
        "router_address": resources.router_address,
        "reward_router_address": resources.router_address,
        "sandbox": resources.sandbox,
    }
    return {name: value for name, value in offered.items() if value is not None}

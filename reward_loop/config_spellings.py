"""Every name under which a setting may be written: our schema's, and those of both generations of verl's configs.

Invariants: each spelling means exactly one setting; the tables hold names only, never values. Keys of verl that the
reward loop has no use for are listed apart, so that a whole trainer config loads and a typo is still refused.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, Union, get_args, get_origin

from reward_loop.config import RewardLoopConfig
from reward_loop.config_base import Config

ALIASES: tuple[tuple[str, str], ...] = (
    # verl since 2026: everything under `reward`
    ("reward.custom_reward_function", "custom_reward_function"),
    ("reward.sandbox", "sandbox"),
    ("reward.sandbox_fusion", "sandbox_fusion"),
    ("reward.reward_model.model_path", "reward_model.model.path"),
    *(
        (f"reward.reward_model.{name}", f"reward_model.{name}")
        for name in (
            *("enable", "enable_resource_pool", "n_gpus_per_node", "nnodes", "model", "rollout"),
            *("models", "replicas", "server", "router", "scoring", "ensemble", "sync"),
        )
    ),
    ("reward.num_workers", "reward_model.num_workers"),
    ("reward.reward_manager", "reward_model.reward_manager"),
    ("reward.reward_manager", "reward_model.reward_manager.name"),  # a plain string
    ("reward.reward_kwargs", "reward_model.reward_kwargs"),
    ("reward.timeout", "reward_model.timeout_s"),
    # ours, in that tree
    *(
        (f"reward.{name}", f"reward_model.{name}")
        for name in (
            "use_reward_loop",
            "executor",
            "max_concurrency",
            "max_threads",
            "isolation",
            "grader",
            "rate_limit",
            "on_error",
            "timeout_s",
            "retry",
            "cache",
        )
    ),
    # verl before
    ("reward_model.reward_manager", "reward_model.reward_manager.name"),  # a plain string
    ("reward_model.reward_loop_source", "reward_model.reward_manager.source"),
    ("reward_model.reward_loop_module_path", "reward_model.reward_manager.module.path"),
    ("reward_model.reward_loop_class_name", "reward_model.reward_manager.module.name"),
    ("reward_model.timeout", "reward_model.timeout_s"),
    ("reward_model.inference", "reward_model.rollout"),
    ("reward_model.sandbox_fusion", "sandbox_fusion"),
    ("reward_manager", "reward_model.reward_manager"),
    # verl's rate limits
    *(
        (f"{tree}.{name}", f"reward_model.rate_limit.{name}")
        for tree in ("reward", "reward_model")
        for name in ("max_concurrent", "max_rpm", "max_tpm", "estimated_tokens_per_request")
    ),
)
"""(spelling, setting or section of the schema); a section stands for everything below it."""

_UNUSED_OF_ROLLOUT = (
    "cudagraph_capture_sizes",
    "disable_log_stats",
    "do_sample",
    "ignore_eos",
    "layered_summon",
    "limit_images",
    "multi_stage_wake_up",
    "quantization_config_file",
)

UNUSED: frozenset[str] = frozenset(
    [
        *(
            f"{rollout}.{name}"
            for rollout in ("reward.reward_model.rollout", "reward_model.rollout", "reward_model.inference")
            for name in _UNUSED_OF_ROLLOUT
        ),
        "reward.compute_score_kwargs",
        "reward_model.forward_max_token_len_per_gpu",
        "reward_model.launch_reward_fn_async",
        "reward_model.max_length",
        "reward_model.megatron",
        "reward_model.micro_batch_size",
        "reward_model.micro_batch_size_per_gpu",
        "reward_model.model.fsdp_config",
        "reward_model.model.input_tokenizer",
        "reward_model.model.override_config",
        "reward_model.model.use_fused_kernels",
        "reward_model.model.use_remove_padding",
        "reward_model.model.use_shm",
        "reward_model.nccl_timeout",
        "reward_model.profiler",
        "reward_model.strategy",
        "reward_model.ulysses_sequence_parallel_size",
        "reward_model.use_dynamic_bsz",
    ]
)
"""Reward keys of verl that are accepted, reported and not used, with everything below them."""

FOREIGN: frozenset[str] = frozenset(
    [
        "async_training",
        "checkpoint",
        "critic",
        "data",
        "defaults",
        "distillation",
        "global_profiler",
        "hydra",
        "model_engine",
        "profiler",
        "ray_init",
        "ray_kwargs",
        "remote_backend",
        "rollout",
        "skip",
        "topology",
        "transfer_queue",
    ]
)
"""Top-level groups of verl's trainers that are none of the reward loop's business."""

SHARED: frozenset[str] = frozenset(["actor_rollout_ref", "algorithm", "trainer"])
"""Groups of verl of which the reward loop reads a few keys and ignores the others."""


@dataclass(frozen=True, slots=True)
class SchemaKey:
    """One setting of the schema."""

    key: str
    """Dotted name."""
    default: object
    nullable: bool
    open: bool
    """Whether further keys may follow below it, which its owner validates."""


def _members(annotation: object) -> Iterator[object]:
    """Yield the types of a union, or the one type, without what `Annotated` adds."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _members(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for member in get_args(annotation):
            yield from _members(member)
    else:
        yield annotation


def _section(annotation: object) -> type[Config] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, Config) else None


def _schema_keys(section: type[Config], prefix: str) -> Iterator[SchemaKey]:
    for name, field in section.model_fields.items():
        if below := _section(field.annotation):
            yield from _schema_keys(below, f"{prefix}{name}.")
            continue
        members = list(_members(field.annotation))
        yield SchemaKey(
            prefix + name,
            field.get_default(call_default_factory=True),
            nullable=type(None) in members,
            open=any(get_origin(member) is dict or _section(member) for member in members),
        )


SCHEMA: dict[str, SchemaKey] = {key.key: key for key in _schema_keys(RewardLoopConfig, "")}
"""Every setting by its dotted name, in schema order."""


def _spellings() -> Iterator[tuple[str, str]]:
    yield from ((key, key) for key in SCHEMA)
    for spelling, target in ALIASES:
        below = [key for key in SCHEMA if key == target or key.startswith(f"{target}.")]
        yield from ((spelling + key.removeprefix(target), key) for key in below or [target])


SPELLINGS: dict[str, str] = dict(_spellings())
"""The setting that each accepted dotted key means; only settings, no sections."""


def _parents(key: str) -> Iterator[str]:
    while "." in key:
        key = key.rpartition(".")[0]
        yield key


SECTIONS: frozenset[str] = frozenset(parent for spelling in SPELLINGS for parent in _parents(spelling))
"""Every dotted key that has settings below it."""

Kind = Literal["setting", "section", "unused", "foreign", "unknown"]


def kind_of(key: str) -> Kind:
    """Tell what a dotted key is; a section that may also be written as a plain value counts as a section."""
    if key in SECTIONS:
        return "section"
    if key in SPELLINGS:
        return "setting"
    if key in UNUSED:
        return "unused"
    return "foreign" if key.partition(".")[0] in FOREIGN else "unknown"


def schema_key_of(key: str) -> SchemaKey | None:
    """Find the setting to which a dotted key of the schema belongs: itself, or the open one above it."""
    return next((SCHEMA[name] for name in (key, *_parents(key)) if name in SCHEMA), None)


def spelled(key: str, newer: bool) -> str:
    """Write a setting of the schema as a user of verl's newer (`reward.*`) or older tree knows it."""
    if newer:
        return next((name for name, meant in SPELLINGS.items() if meant == key and name.startswith("reward.")), key)
    return key

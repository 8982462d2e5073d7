"""The wrapper that scores equal content once.

Invariants: the key covers everything of a unit that a grader may see but the group's `uid`, and the code and settings that
judge it; only rewards are kept, never failures; equal units that are scored at the same time share one call.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import pickle
import sqlite3
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import cachetools
import diskcache
import numpy as np

from reward_loop.config import CacheConfig, RewardLoopConfig
from reward_loop.data import DataProto, response_lengths
from reward_loop.errors import ConfigError, DataError
from reward_loop.managers.scorer import Scorer
from reward_loop.outcome import Reward

Rewards = Sequence[Reward | Exception]


class Store(Protocol):
    """A bounded mapping; `get` returns None for what it does not hold."""

    def get(self, key: str) -> Rewards | None:
        """Return the rewards kept under `key`."""

    def put(self, key: str, rewards: Rewards) -> None:
        """Keep the rewards, pushing out the least recently used ones."""


class MemoryStore:
    """The last `max_entries` units used, in this process."""

    def __init__(self, max_entries: int) -> None:
        self._entries: cachetools.LRUCache[str, Rewards] = cachetools.LRUCache(max_entries)

    def get(self, key: str) -> Rewards | None:
        """Return the rewards kept under `key`."""
        return self._entries.get(key)

    def put(self, key: str, rewards: Rewards) -> None:
        """Keep the rewards."""
        self._entries[key] = rewards


class DiskStore:
    """Up to `max_bytes` in a directory that processes share and runs find again."""

    def __init__(self, path: str, max_bytes: int) -> None:
        self._cache = diskcache.Cache(path, size_limit=max_bytes, eviction_policy="least-recently-used")

    def get(self, key: str) -> Rewards | None:
        """Return the rewards kept under `key`."""
        return self._cache.get(key)  # type: ignore[no-any-return]

    def put(self, key: str, rewards: Rewards) -> None:
        """Keep the rewards."""
        self._cache.set(key, list(rewards))


def open_store(config: CacheConfig) -> Store:
    """Return the store that the configuration asks for; ConfigError where its directory can't be used."""
    if config.path is None:
        return MemoryStore(config.max_entries)
    try:
        return DiskStore(config.path, config.max_bytes)
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(f"reward_model.cache.path={config.path}: {error}; give a directory that can be written to") from error


def with_cache(scorer: Scorer, store: Store, judge: str) -> Scorer:
    """Return a scorer that looks in `store` first; `judge` identifies the code and settings that judge (`judge_key`)."""
    locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    async def score(data: DataProto) -> Rewards:
        key = unit_key(data, judge)
        async with locks.setdefault(key, asyncio.Lock()):
            rewards = store.get(key)
            if rewards is None:
                rewards = await scorer(data)
                if not any(isinstance(reward, Exception) for reward in rewards):
                    store.put(key, rewards)
            return rewards

    return score


def judge_key(config: RewardLoopConfig, *code: Callable[..., Any], files: object = None) -> str:
    """Return what identifies the judge: settings, what is in their `files`, and the source of the modules of its `code`.

    So an edit of any of them empties the cache.
    """
    judged_by = {"reward_manager", "reward_kwargs", "enable", "model", "models", "rollout", "scoring", "ensemble"}
    settings = config.model_dump(include={"reward_model": judged_by, "custom_reward_function": True, "algorithm": True})
    return _digest([settings, files, *map(_source, code)])


def _source(code: Callable[..., Any]) -> str:
    try:
        return inspect.getsource(inspect.getmodule(code) or code)
    except (OSError, TypeError):  # typed at a prompt
        return getattr(code, "__qualname__", repr(code))


def unit_key(data: DataProto, judge: str) -> str:
    """Return the key of a unit's content, independent of padding, of other columns' order and of the process."""
    columns = {name: list(data.column(name)) for name in data.column_names() if name != "uid"}  # type: ignore[arg-type]
    return _digest([judge, columns, _prompts(data), _responses(data)])


def _responses(data: DataProto) -> list[list[int]]:
    responses = data.tensor("responses")
    if responses is None:
        return []
    return [row[:length].tolist() for row, length in zip(responses, response_lengths(data), strict=True)]


def _prompts(data: DataProto) -> list[list[int]]:
    """Return the prompts' tokens, without the padding where `attention_mask` tells it."""
    prompts, mask = data.tensor("prompts"), data.tensor("attention_mask")
    if prompts is None:
        return []
    if mask is None or mask.shape[1] < prompts.shape[1]:
        return prompts.tolist()
    pairs = zip(prompts, mask[:, : prompts.shape[1]].bool(), strict=True)
    return [prompt[valid].tolist() for prompt, valid in pairs]


def _digest(value: object) -> str:
    digest = hashlib.blake2b(digest_size=20)
    _feed(digest.update, value)
    return digest.hexdigest()


def _feed(update: Callable[[bytes], None], value: object) -> None:
    """Feed a value's type and content; mappings in the order of their keys."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, Mapping):
        update(b"{")
        for key in sorted(value, key=repr):
            _feed(update, key)
            _feed(update, value[key])
        update(b"}")
    elif isinstance(value, list | tuple):
        update(b"[")
        for item in value:
            _feed(update, item)
        update(b"]")
    elif isinstance(value, set | frozenset):
        _feed(update, sorted(value, key=repr))
    elif value is None or isinstance(value, str | int | float | bool | bytes):
        update(f"{type(value).__name__}:{value!r};".encode())
    else:
        update(_pickled(value))


def _pickled(value: object) -> bytes:
    try:
        return pickle.dumps(value)
    except Exception as error:  # an object's own __reduce__ may raise anything
        raise DataError(
            f"a batch holds a {type(value).__name__} that can't be pickled ({error}), so its reward can't be cached: "
            "leave it out of the batch, or set reward_model.cache.enable=false"
        ) from error

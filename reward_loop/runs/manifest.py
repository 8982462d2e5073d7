"""What decides the result of a run: an unfinished one may only be continued where all of this is as it was.

Owns the comparison too, so that a refusal says which file or setting is another one now. A manifest is flat, and JSON.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import reward_loop
from reward_loop.config import RewardLoopConfig
from reward_loop.managers.registry import resolve_reward_manager_cls
from reward_loop.runs.fields import FieldMap
from reward_loop.runs.source import RolloutSource

Manifest = dict[str, Any]

_CONTENTS = "contents of "
_UNSEEN = object()
_WITHOUT_EFFECT: dict[str, Any] = {
    "reward_model": {
        "use_reward_loop",
        "executor",
        "num_workers",
        "max_concurrency",
        "max_threads",
        "timeout_s",
        "retry",
        "cache",
        "enable_resource_pool",
        "n_gpus_per_node",
        "nnodes",
        "replicas",
        "server",
        "router",
    }
}
"""Settings that say how fast or how patiently samples are scored: they may change within a run."""


def manifest_of(
    source: RolloutSource, fields: FieldMap, chunk_rows: int, config: RewardLoopConfig, function: Callable[..., Any]
) -> Manifest:
    """Return what scoring `source` by `function` under `config` depends on."""
    manager = resolve_reward_manager_cls(config.reward_model.reward_manager)
    return {
        "reward_loop": reward_loop.__version__,
        "rows per chunk": chunk_rows,
        f"{_CONTENTS}the input": source.fingerprint(),
        f"{_CONTENTS}the reward function's file": _digest(function),
        f"{_CONTENTS}the reward manager's file": _digest(manager),
        **dict(_flat({"field": fields.as_dict()})),
        **dict(_flat(config.model_dump(mode="json", exclude=_WITHOUT_EFFECT))),
    }


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Say what differs, in words; nothing for equal manifests."""
    keys = [key for key in {**before, **now} if before.get(key, _UNSEEN) != now.get(key, _UNSEEN)]
    return [
        f"the {key} changed" if key.startswith(_CONTENTS) else f"{key} was {before.get(key)!r} and is {now.get(key)!r}"
        for key in keys
    ]


def _digest(code: object) -> str:
    module = inspect.getmodule(code)
    file = getattr(module, "__file__", None)
    if file is None:  # typed at a prompt
        return getattr(code, "__qualname__", type(code).__qualname__)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value

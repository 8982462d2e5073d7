"""One name per weight, as the served checkpoint has it, whatever wrapped the model that is trained.

A name is a path of segments, and only whole segments are looked at. What PEFT, FSDP, DDP, torch.compile, activation checkpointing
and TRL's value heads put into the path is taken out, and a body that was saved without its outer model gets its `model.` back.

Invariants: a name that is normal already stays as it is; no two weights get the same name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reward_loop.errors import WeightSyncError

HEADS = ("score", "classifier", "v_head", "reward_head", "value_head", "regression_head")
"""Modules that turn hidden states into scores. `lm_head` is none: a generative model's is a part of its body."""

_FLAT = "_flat_param"
_PASSING = frozenset({"_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod", "base_layer", "token_adapter"})
_OUTERMOST = frozenset({"module", "pretrained_model"})  # DDP, and TRL's model with a value head
_PEFT = ["base_model", "model"]
_STALE = "original_module"
_SAVED = "modules_to_save"
# What the methods of PEFT call their weights: they hold a change, which a served model has no place for.
_ADAPTERS = (
    "lora_",
    "trainable_tokens_",
    "ia3_",
    "hada_",
    "lokr_",
    "oft_",
    "boft_",
    "hra_",
    "vera_",
    "randlora_",
    "bone_",
    "fourierft_",
)


def normalised(names: Iterable[str], adapter: str | None = None, heads: Sequence[str] = HEADS) -> dict[str, str]:
    """Return the served name of each weight, in the same order; the stale copies that PEFT keeps of trained modules are left out.

    Where several adapters brought a module of their own (`modules_to_save`), `adapter` says which one is served; `heads` are
    patterns as `is_head` takes them. Raises WeightSyncError where two weights would get the same name, as those of several
    adapters do, and for the flattened weights of FSDP 1.
    """
    paths = {name: path for name in names if (path := _unwrapped(name, adapter)) is not None}
    bare = any(path[0] == "layers" for path in paths.values())
    outer = {"lm_head", *HEADS, *(_segments(pattern)[0] for pattern in heads)}
    served = {name: ".".join(_rooted(path, bare, outer)) for name, path in paths.items()}
    _check_unique(served, adapter)
    return served


def is_adapter(name: str) -> bool:
    """Return whether it is a weight of an adapter, such as `q_proj.lora_A.default.weight`."""
    return any(segment.startswith(_ADAPTERS) for segment in name.split("."))


def is_head(name: str, patterns: Sequence[str] = HEADS) -> bool:
    """Return whether a normalised name belongs to a head.

    A pattern is one segment or more, with or without a dot at its end ("score", "score.", "rm.score"), and matches whole
    segments; "model." before it changes nothing. A module inside a numbered layer is never a head, whatever it is called.
    """
    path = name.split(".")
    end = next((at for at, segment in enumerate(path) if segment.isdigit()), len(path))
    return any(_holds(path[:end], _segments(pattern)) for pattern in patterns)


def _unwrapped(name: str, adapter: str | None) -> list[str] | None:
    """Return a name without what wrappers put into it, or None for what isn't served."""
    path = name.split(".")
    if _FLAT in path:
        raise WeightSyncError(
            f"{name} holds several weights that FSDP 1 has flattened; take the state dict under "
            "FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT), or build FSDP with use_orig_params=True"
        )
    if _STALE in path:
        return None
    path = [segment for segment in path if segment not in _PASSING]
    if _SAVED in path and (at := path.index(_SAVED)) < len(path) - 2:  # the files of an adapter don't name it
        if adapter is not None and path[at + 1] != adapter:
            return None
        del path[at + 1]
    path = [segment for segment in path if segment != _SAVED]
    while len(path) > 1 and (path[0] in _OUTERMOST or path[:2] == _PEFT):
        path = path[1:] if path[0] in _OUTERMOST else path[2:]
    return _without_summaries(path) or name.split(".")


def _without_summaries(path: list[str]) -> list[str]:
    """Return a path without what TRL's value head puts below `v_head`."""
    kept = list[str]()
    for segment in path:
        if segment != "summary" or kept[-1:] != ["v_head"]:
            kept.append(segment)
    return kept


def _rooted(path: list[str], bare: bool, outer: set[str]) -> list[str]:
    """Put a path where a checkpoint has it: the body in `model`, what is `outer` beside it."""
    while path[0] == "model" and len(path) > 2 and path[1] in {"model", *outer}:
        path = path[1:]
    return ["model", *path] if bare and path[0] not in {"model", *outer} else path


def _check_unique(served: dict[str, str], adapter: str | None) -> None:
    first = dict[str, str]()
    for name, normal in served.items():
        other = first.setdefault(normal, name)
        if other != name:
            several = adapter is None and _SAVED in name.split(".")
            remedy = "give the adapter that is served" if several else "leave one of them out"
            raise WeightSyncError(f"{other} and {name} are both {normal} on the server; {remedy}")


def _segments(pattern: str) -> list[str]:
    segments = pattern.removesuffix(".").split(".")
    if not all(segments):
        raise WeightSyncError(f"{pattern!r} names no head; write one or more whole segments of its name, such as 'score'")
    return segments[1:] if segments[0] == "model" and len(segments) > 1 else segments


def _holds(path: list[str], wanted: list[str]) -> bool:
    return any(path[at : at + len(wanted)] == wanted for at in range(len(path) - len(wanted) + 1))

"""Which tensors of a model in training an update carries, by the mode in which the model is trained.

Invariants: nothing is copied, and what is returned can be sent: dense floating-point tensors that hold data, under the names that
the server knows, each piece of memory once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import torch

from reward_loop.errors import WeightSyncError
from reward_loop.sync.key_names import HEADS, is_adapter, is_head, normalised
from reward_loop.sync.manifest import DTYPES
from reward_loop.sync.training_mode import RewardModelTrainingMode

_SHOWN = 10
_DTYPES = frozenset(DTYPES.values())


def selected(
    state_dict: Mapping[str, object],
    mode: RewardModelTrainingMode = RewardModelTrainingMode.FULL,
    head_name_patterns: Sequence[str] | None = None,
    strict: bool = False,
    *,
    generative: bool = False,
    adapter: str | None = None,
    key_filter: Callable[[str], bool] | None = None,
) -> dict[str, torch.Tensor]:
    """Return the tensors that an update in this mode carries, by their served names, in the order of the state dict.

    HEAD_ONLY takes the head and leaves the body out; with `strict` a body is an error. LORA and FULL take everything: a body, and
    a head unless the model is `generative`, and no adapter that isn't merged. `head_name_patterns` are those of
    `key_names.is_head` (None: HEADS), `adapter` that of `key_names.normalised`; `key_filter` gets served names, and what it
    refuses is left out before anything is checked. Of tensors that share their memory (tied weights) the first is taken, a
    `lm_head` last.

    Raises WeightSyncError naming what is missing or what can't be sent: other values than tensors, other types than float32,
    bfloat16 and float16, tensors on the meta device, shards, quantised and sparse ones.
    """
    patterns = HEADS if head_name_patterns is None else head_name_patterns
    served = normalised(state_dict, adapter, patterns)
    chosen = {normal: state_dict[name] for name, normal in served.items() if key_filter is None or key_filter(normal)}
    heads = {name for name in chosen if is_head(name, patterns)}
    if not chosen:
        raise WeightSyncError(f"none of the state dict's {len(state_dict)} entries is a weight to publish{_filtered(key_filter)}")
    if mode is RewardModelTrainingMode.HEAD_ONLY:
        _check_head_only(chosen, heads, patterns, strict)
        chosen = {name: value for name, value in chosen.items() if name in heads}
    _check_merged(chosen, mode)
    if mode is not RewardModelTrainingMode.HEAD_ONLY:
        _check_complete(chosen, heads, mode, patterns, generative)
    return _once_each(_sendable(chosen))


def _check_head_only(chosen: Collection[str], heads: set[str], patterns: Sequence[str], strict: bool) -> None:
    if not heads:
        raise WeightSyncError(
            f"a head_only update needs a head, and none of {len(chosen)} weights ({_listed(chosen)}) is in "
            f"{', '.join(patterns)}; name it by head_name_patterns"
        )
    if strict and (body := [name for name in chosen if name not in heads]):
        raise WeightSyncError(
            f"the head_only state dict holds {len(body)} weights of the body ({_listed(body)}), whose changes are lost; give "
            "the head's weights alone, set strict=False to leave the others out, or publish in the mode full"
        )


def _check_merged(chosen: Collection[str], mode: RewardModelTrainingMode) -> None:
    if adapters := [name for name in chosen if is_adapter(name)]:
        raise WeightSyncError(
            f"{len(adapters)} weights are adapters that aren't merged ({_listed(adapters)}): without them the server would get "
            "the model as it was before training; publish reward_loop.sync.lora.merged_state_dict(model), which leaves the "
            f"adapters and the optimizer as they are, with training_mode={mode}"
        )


def _check_complete(
    chosen: Collection[str], heads: set[str], mode: RewardModelTrainingMode, patterns: Sequence[str], generative: bool
) -> None:
    if len(heads) == len(chosen):
        raise WeightSyncError(
            f"an update in the mode {mode} needs the body, and all of {_listed(heads)} is the head; publish in the mode head_only"
        )
    if not heads and not generative:
        raise WeightSyncError(
            f"a reward model published in the mode {mode} needs its head, and none of {len(chosen)} weights "
            f"({_listed(chosen)}) is in {', '.join(patterns)}; name it by head_name_patterns, or set generative=True for a "
            "language model"
        )


def _sendable(chosen: Mapping[str, object]) -> dict[str, torch.Tensor]:
    tensors = {name: value for name, value in chosen.items() if isinstance(value, torch.Tensor)}
    wrong = [f"{name} is {what}" for name, value in chosen.items() if (what := _obstacle(value))]
    if wrong:
        more = f" and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise WeightSyncError(
            f"these can't be sent: {'; '.join(wrong[:_SHOWN])}{more}; leave out by key_filter what isn't served"
        )
    return {name: tensor.detach() for name, tensor in tensors.items()}


def _obstacle(value: object) -> str | None:
    """Return why a value can't be sent and what to do, or None."""
    if not isinstance(value, torch.Tensor):
        return f"no tensor, but {type(value).__name__}"
    # DTensor and the quantised tensors of torchao look like one tensor and are several.
    if hasattr(value, "__tensor_flatten__"):
        return f"in parts ({type(value).__name__}): give reward_loop.sync.materialize.full_tensors(state_dict), or dequantise it"
    if value.is_meta:
        return "on the meta device, without data: load it first"
    if value.layout is not torch.strided:
        return f"{value.layout}: make it dense"
    if value.dtype not in _DTYPES:
        return f"{value.dtype}, and a served weight is one of {', '.join(DTYPES)}: cast it"
    return None


def _once_each(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    taken = dict[tuple[object, ...], str]()
    for name in sorted(tensors, key=lambda name: name.split(".")[0] == "lm_head"):
        taken.setdefault(_memory(tensors[name]) or (name,), name)
    kept = set(taken.values())
    return {name: tensor for name, tensor in tensors.items() if name in kept}


def _memory(tensor: torch.Tensor) -> tuple[object, ...] | None:
    """Identify the memory of a tensor and how it is read; None for one that has none."""
    if not tensor.numel():
        return None
    return tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _filtered(key_filter: object) -> str:
    return "" if key_filter is None else " that key_filter lets through"


def _listed(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:3])
    return f"{shown}, …" if len(names) > 3 else shown

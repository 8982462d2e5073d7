"""What a model with LoRA adapters computes, as plain weights: W' = W + (alpha / r) B A (rank-stabilised: alpha / sqrt(r)).

`merged_state_dict` is for publishing: it computes the merged weights beside the model, whose own are never written to. So any
number of publishes in any precision leaves nothing behind. `merge_and_reinit` moves the change into the body for good, and lets
training go on with fresh adapters (seed 001).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import torch
from torch import distributed, nn

from reward_loop.errors import TrainingError, WeightSyncError
from reward_loop.sync.adapted_layers import AdaptedLayer, adapted_layers, served_weights
from reward_loop.sync.key_names import normalised

_Model = TypeVar("_Model", bound=nn.Module)
_Optimizer = TypeVar("_Optimizer", bound=torch.optim.Optimizer)


@torch.no_grad()
def merged_state_dict(model: nn.Module, *, device: torch.device | str | None = None) -> dict[str, torch.Tensor]:
    """Return the weights of a plain model that computes what this one does with its active adapters, by their served names.

    The model, its adapters and its optimizer stay as they are, bit for bit. Merged and trainable weights are copies, on `device`
    where one is given; frozen ones are the model's own. Weights that FSDP 2 has sharded come back sharded, for
    `materialize.full_tensors`: every rank must call it.

    Raises WeightSyncError for a model without adapters or with disabled ones, for a layer that PEFT can't merge (a quantised
    one), and for an adapter on one of two tied weights, since a served model has one tensor for both.
    """
    layers = adapted_layers(model)
    weights = served_weights(model)
    _check_ties(layers, weights)
    taken = dict[int, torch.Tensor]()  # by identity: what is tied stays tied
    for layer in layers:
        own = layer.own
        taken |= {id(own[name]): _moved(value, device) for name, value in layer.merged_weights().items()}
    for value in weights.values():
        if id(value) not in taken:
            taken[id(value)] = _moved(value.detach(), device, copy=_may_change(value))
    names = normalised(weights)
    return {names[name]: taken[id(value)] for name, value in weights.items()}


@torch.no_grad()
def merge_and_reinit(model: _Model, optimizer: _Optimizer, *, seed: int | None = None) -> tuple[_Model, _Optimizer]:
    """Merge the active adapters into the body for good and let training go on with fresh ones; returns what it was given.

    The model computes the same as before, but for the rounding of the body's type. The optimizer keeps its hyper-parameters and
    what it knows of other weights, such as the head; what it knew of the adapters is gone, so that no old momentum moves the new
    ones. A learning-rate schedule stays attached and is left to the caller. `seed` makes the new adapters the same in every
    process of data-parallel training, which needs one (and another each time).

    Raises, before anything changes, TrainingError where other adapters were trained on this body, where the optimizer trains none
    of the adapters, or where they are merged already or no LoRA; WeightSyncError as `merged_state_dict` does.
    """
    layers = adapted_layers(model)
    _check_ties(layers, served_weights(model))
    fresh = [value for layer in layers for value in layer.adapters.values()]
    _check_reinit(layers, fresh, optimizer, seed)
    devices = sorted({value.device.index or 0 for value in fresh if value.is_cuda})
    with torch.random.fork_rng(devices, enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        for layer in layers:
            own = layer.own
            for name, value in layer.merged_weights().items():
                own[name].copy_(value)
            _reset(layer)
    for value in fresh:
        optimizer.state.pop(value, None)
        value.grad = None
    return model, optimizer


def _may_change(value: torch.Tensor) -> bool:
    """Return whether training may write to it: all but frozen parameters."""
    return value.requires_grad or not isinstance(value, nn.Parameter)


def _moved(value: torch.Tensor, device: torch.device | str | None, *, copy: bool = False) -> torch.Tensor:
    return value.to(value.device if device is None else device, copy=copy)


def _check_ties(layers: Sequence[AdaptedLayer], weights: Mapping[str, torch.Tensor]) -> None:
    """Refuse a weight in several places of which only some are adapted: the model computes with two, and is served with one."""
    adapted = Counter(id(value) for layer in layers for value in layer.own.values())
    places = Counter(id(value) for value in weights.values())
    for layer in layers:
        for value in layer.own.values():
            if places[id(value)] > adapted[id(value)]:
                tied = [name for name, other in weights.items() if other is value]
                raise WeightSyncError(
                    f"{' and '.join(tied)} are one weight, and only {layer.name} has an adapter: merged, it would change both; "
                    "leave it out of target_modules, untie the weights, or set ensure_weight_tying"
                )


def _check_reinit(
    layers: Sequence[AdaptedLayer], fresh: Sequence[nn.Parameter], optimizer: torch.optim.Optimizer, seed: int | None
) -> None:
    from peft.tuners.lora import LoraLayer

    for layer in layers:
        if layer.merged:
            raise TrainingError(f"the adapters of {layer.name} are merged already; call unmerge_adapter() first")
        for tuner in layer.tuners:
            if not isinstance(tuner, LoraLayer):
                raise TrainingError(f"{layer.name} is adapted by {type(tuner).__name__}; only LoRA can begin again")
            if others := {*tuner.lora_A, *tuner.lora_embedding_A} - {*tuner.active_adapters}:
                raise TrainingError(
                    f"{layer.name} has other adapters, {', '.join(sorted(others))}, which fit the body as it is; delete them "
                    "(delete_adapter), or publish merged_state_dict(model), which leaves the body alone"
                )
    trained = {id(value) for group in optimizer.param_groups for value in group["params"]}
    if not any(id(value) in trained for value in fresh):
        raise TrainingError(f"the optimizer trains none of the model's {len(fresh)} adapter weights; give the model's own")
    if seed is None and distributed.is_initialized() and distributed.get_world_size() > 1:
        raise TrainingError(
            "several processes would begin with different adapters; give merge_and_reinit a seed, the same in each"
        )


def _reset(layer: AdaptedLayer) -> None:
    """Draw new adapters that change nothing: one of the two factors is zero."""
    from peft.tuners.lora import LoraLayer

    for tuner in layer.tuners:
        if isinstance(tuner, LoraLayer):
            reset: Callable[[str, bool], None] = tuner.reset_lora_parameters  # untyped
            for adapter in tuner.active_adapters:
                reset(adapter, True)  # as PEFT begins by default

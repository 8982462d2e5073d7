"""The layers of a model that PEFT has adapted, and what each computes as plain weights.

Invariant: a layer's own weights are never written to. While PEFT merges, stand-ins are in their places, so that what is restored
is what was there, whatever the precision and however the merge ends.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import nn

from reward_loop.errors import WeightSyncError
from reward_loop.sync.key_names import is_adapter

if TYPE_CHECKING:
    from peft.tuners.tuners_utils import BaseTunerLayer


@dataclass(frozen=True, slots=True)
class AdaptedLayer:
    """One layer of the plain model, and what PEFT put around it: more than one where several parameters of it are adapted."""

    name: str
    base: nn.Module
    tuners: Sequence[BaseTunerLayer]

    @property
    def own(self) -> Mapping[str, nn.Parameter]:
        """The layer's own weights."""
        return dict(self.base.named_parameters(recurse=False))

    @property
    def merged(self) -> bool:
        """Whether its own weights hold the adapters' change now (`merge_adapter`)."""
        return any(tuner.merged for tuner in self.tuners)

    @property
    def adapters(self) -> Mapping[str, nn.Parameter]:
        """The weights of all adapters, by their names in the model."""
        found = {
            f"{self.name}.{name}": value for tuner in self.tuners for name, value in cast("nn.Module", tuner).named_parameters()
        }
        return {name: value for name, value in found.items() if is_adapter(name)}

    def merged_weights(self) -> dict[str, torch.Tensor]:
        """Return, for each of its own weights, a new tensor as the layer computes with it; WeightSyncError if PEFT can't."""
        own = self.own
        if self.merged:  # it computes with what is there, and with nothing else
            return {name: value.detach().clone() for name, value in own.items()}
        with self._stand_ins(own):
            try:
                for tuner in self.tuners:
                    tuner.merge()
            except Exception as error:  # what PEFT raises differs from kind to kind of layer
                raise WeightSyncError(f"the adapters of {self.name} can't be merged: {error!r}") from error
            return {name: value.detach() for name, value in self.own.items()}

    def check(self) -> None:
        """Raise WeightSyncError for a layer that can't be merged."""
        if any(tuner.disable_adapters for tuner in self.tuners):
            raise WeightSyncError(f"the adapters of {self.name} are disabled; publish outside of disable_adapter()")
        if any(True for child in self.base.children() for _ in child.parameters()):
            raise WeightSyncError(
                f"{self.name} ({type(self.base).__name__}) is adapted together with modules inside it, which can't be merged "
                "beside the model; publish the state dict of a copy after merge_and_unload()"
            )
        if not self.own or not all(value.is_floating_point() for value in self.own.values()):
            raise WeightSyncError(
                f"{self.name} ({type(self.base).__name__}) is quantised: a merge would round the adapters away; train on a body "
                "in floating point, or publish the adapter itself with reward_loop.sync.adapters"
            )

    @contextmanager
    def _stand_ins(self, own: Mapping[str, nn.Parameter]) -> Generator[None]:
        try:
            self._put({name: _parameter(value.detach().clone()) for name, value in own.items()})
            yield
        finally:
            try:
                # PEFT subtracts when it takes a merge back: from zeros, since the sum has just been handed out.
                self._put({name: _parameter(torch.zeros_like(value)) for name, value in own.items()})
                for tuner in self.tuners:
                    if tuner.merged:
                        tuner.unmerge()
            finally:
                self._put(own)

    def _put(self, parameters: Mapping[str, nn.Parameter]) -> None:
        for name, value in parameters.items():
            setattr(self.base, name, value)


def adapted_layers(model: nn.Module) -> list[AdaptedLayer]:
    """Return the adapted layers, in the model's order.

    Raises WeightSyncError for a model without any, for a layer that can't be merged, and where PEFT is missing.
    """
    try:
        from peft.tuners.tuners_utils import BaseTunerLayer
    except ImportError as error:
        raise WeightSyncError(f"adapters need PEFT ({error}): pip install 'reward_loop[train]'") from error
    tuners = dict[int, tuple[str, list[BaseTunerLayer]]]()
    bases = dict[int, nn.Module]()
    for name, module in model.named_modules():
        if isinstance(module, BaseTunerLayer):
            base = module.get_base_layer()
            bases[id(base)] = base
            tuners.setdefault(id(base), (name, []))[1].append(module)
    if not tuners:
        raise WeightSyncError("the model has no adapter of PEFT; publish its state_dict() in the mode full")
    layers = [AdaptedLayer(name, bases[key], found) for key, (name, found) in tuners.items()]
    for layer in layers:
        layer.check()
    return layers


def served_weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return the model's parameters and buffers by their names in its state dict, without adapters and stale copies.

    Of the copies that adapters brought of a module (`modules_to_save`), the active one is in, or the original where none is.
    """
    from peft.utils.other import ModulesToSaveWrapper

    active = set[int]()
    for module in model.modules():
        if isinstance(module, ModulesToSaveWrapper):
            names = module.active_adapters
            used = module.modules_to_save[names[0]] if names else module.original_module
            active.update(id(value) for value in used.state_dict(keep_vars=True).values())
    weights = dict[str, torch.Tensor]()
    for name, value in model.state_dict(keep_vars=True).items():
        copied = {"modules_to_save", "original_module"} & set(name.split("."))
        if isinstance(value, torch.Tensor) and not is_adapter(name) and (not copied or id(value) in active):
            weights[name.replace(".original_module", "")] = value
    return weights


def _parameter(value: torch.Tensor) -> nn.Parameter:
    return nn.Parameter(value, requires_grad=False)

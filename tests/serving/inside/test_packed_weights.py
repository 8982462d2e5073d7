"""Packed copies of weights, and those that vLLM forgets."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

from reward_loop.serving.inside.packed_weights import NoWeights, packed_weights, repack_shared


class Packing:
    """Packs as vLLM does on the CPU: the copy is known to a function alone, which the module calls."""

    def __init__(self, *, keeps_weight: bool) -> None:
        self._keeps_weight = keeps_weight

    def process_weights_after_loading(self, module: Any) -> None:
        """Pack a module's weight."""
        copy = module.weight.detach().clone()
        module.cpu_linear = lambda inputs: inputs @ copy.T
        if not self._keeps_weight:
            module.weight = torch.nn.Parameter(torch.empty(0))


def layer(weight: torch.nn.Parameter, *, keeps_weight: bool = True) -> Any:
    """Return a module that was packed."""
    module: Any = torch.nn.Module()
    module.weight = weight
    module.quant_method = Packing(keeps_weight=keeps_weight)
    module.quant_method.process_weights_after_loading(module)
    return module


@pytest.fixture
def model() -> Any:
    """An embedding, an output layer that shares its weight, and two layers of their own, one of which has the copy alone."""
    model: Any = torch.nn.Module()
    model.embedding = layer(torch.nn.Parameter(torch.ones(2, 2)))
    model.output = layer(model.embedding.weight)
    model.plain = layer(torch.nn.Parameter(torch.ones(2, 2)))
    model.linear = layer(torch.nn.Parameter(torch.ones(2, 2)), keeps_weight=False)
    return model


def products(model: Any) -> dict[str, float]:
    """Return what each layer makes of a one."""
    return {name: float(module.cpu_linear(torch.tensor([[1.0, 0.0]]))[0, 0]) for name, module in model.named_children()}


def load(module: Any, value: float) -> None:
    """Load a module by itself."""
    module.weight.data.fill_(value)
    module.quant_method.process_weights_after_loading(module)


def test_a_layer_that_shares_a_loaded_weight_is_packed_again_and_no_other(model: Any) -> None:
    before, plain = packed_weights(model), model.plain.cpu_linear
    load(model.embedding, 3.0)
    assert products(model)["output"] == 1.0
    repack_shared(before)
    assert products(model) == {"embedding": 3.0, "output": 3.0, "plain": 1.0, "linear": 1.0}
    assert model.plain.cpu_linear is plain


def test_what_was_given_back_is_packed_again_and_computes_nothing_meanwhile(model: Any) -> None:
    model.output.cpu_linear = NoWeights(2)
    assert model.output.cpu_linear(torch.ones(3, 5, 2)).isnan().all()
    assert model.output.cpu_linear(torch.ones(3, 5, 2)).shape == (3, 5, 2)
    repack_shared(packed_weights(model))
    assert products(model)["output"] == 1.0


def test_old_copies_are_not_kept_until_all_are_loaded(model: Any) -> None:
    old, before = weakref.ref(model.linear.cpu_linear), packed_weights(model)
    model.linear.weight = torch.nn.Parameter(torch.ones(2, 2))
    load(model.linear, 2.0)
    gc.collect()
    assert old() is None
    repack_shared(before)
    assert products(model)["linear"] == 2.0

"""Loads checkpoint weights into vLLM's model in place, layer by layer, past two faults of vLLM's own reloading.

The loader of its classification head loses the head's bias when it loads a second time; and on the CPU a layer that shares its
weight with another one, as a tied output layer does, keeps its packed copy of the old weight.

Invariant: modules, parameters and buffers stay the same objects; a load that fails leaves the model able to load again, with
whatever weights got in.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain
from typing import Any

import torch
from vllm.config import set_current_vllm_config
from vllm.model_executor.model_loader.reload.layerwise import (
    finalize_layerwise_reload,
    get_layerwise_info,
    initialize_layerwise_reload,
)

from reward_loop.serving.inside.known_weights import HEAD_BIAS
from reward_loop.serving.inside.memory import blocks_reused
from reward_loop.serving.inside.packed_weights import packed_weights, repack_shared
from reward_loop.serving.inside.staged_file import Weights

_finalize: Any = finalize_layerwise_reload  # untyped


def load(vllm_config: Any, model: torch.nn.Module, weights: Weights, *, head: Collection[str] = ()) -> None:
    """Load these weights of the checkpoint's names; each layer must come as a whole.

    `head` says that there are no others than these, and nothing depends on them: then no other layer is looked at. Raises
    whatever the model's loader raises.
    """
    packed = packed_weights(model)
    with set_current_vllm_config(vllm_config), blocks_reused():
        try:
            for part in _modules_of(head, model) or [model]:
                initialize_layerwise_reload(part)
            load_weights: Any = model.load_weights
            load_weights(without_head_bias(_a_small_one_first(weights, model), model))
            _finalize(model, vllm_config.model_config)
        except BaseException:  # whatever it was, and also if it is to end: the layers are half-way, and in no state to compute
            _take_back(model, vllm_config.model_config)
            raise
        repack_shared(packed)


def without_head_bias(weights: Weights, model: torch.nn.Module) -> Weights:
    """Yield all but the bias of vLLM's own head, put in place here."""
    bias = dict(model.named_parameters()).get(HEAD_BIAS)
    for name, weight in weights:
        if name == HEAD_BIAS and bias is not None:
            bias.data.copy_(weight)
        else:
            yield name, weight


def _modules_of(names: Collection[str], model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the modules that hold these weights; none if vLLM calls one of them otherwise."""
    modules = dict(model.named_modules())
    paths = {name.rpartition(".")[0] for name in names}
    return [modules[path] for path in paths] if paths <= modules.keys() else []


def _a_small_one_first(weights: Weights, model: torch.nn.Module) -> Weights:
    """Yield the same, some small one first: vLLM's pooling models keep a copy of the first that they know, until the end."""
    known = {name for name, _ in model.named_parameters()}
    held = list[tuple[str, torch.Tensor]]()
    for name, weight in weights:
        if name in known and weight.ndim == 1:  # a norm's
            yield name, weight
            break
        held.append((name, weight))
    yield from chain(held, weights)


def _take_back(model: torch.nn.Module, model_config: Any) -> None:
    """Give every layer that was being loaded its parameters back, and forget what it had been given."""
    for module in model.modules():
        info = get_layerwise_info(module)
        if info.can_load():
            info.loaded_weights.clear()
            info.load_numel = 0
    _finalize(model, model_config)

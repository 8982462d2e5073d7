"""The CPU worker that can sleep: vLLM's own only logs that it can't.

Asleep, the key-value cache and every weight are given back to the operating system. Level 1 wakes with the checkpoint's weights,
read again, and the updates committed since then (main memory is what is to be freed: there is nowhere else to keep them); level 2
wakes with NaN for weights, so that nothing wrong can be computed before they are synced.

Invariant: modules, parameters and buffers stay the same objects; only their storage goes and comes. Buffers are kept, as no
checkpoint has them.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from vllm.model_executor.model_loader import get_model_loader
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info
from vllm.v1.worker.cpu_worker import CPUWorker

from reward_loop.serving.inside.seeded_prefill import guard_if_needed

Weights = Iterator[tuple[str, torch.Tensor]]
Sizes = list[tuple[Any, int]]
"""Emptied storages (torch.UntypedStorage, whose `fill_` its stubs don't know) and the bytes that each had."""

guard_if_needed()  # where vLLM's plugins are switched off (VLLM_PLUGINS), the worker is still ours


class SleepCPUWorker(CPUWorker):  # type: ignore[misc, unused-ignore]  # untyped where vLLM is not installed
    """vLLM's CPU worker, with `sleep`, `wake_up` and `discard`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._cache: Sizes = []
        self._weights: Sizes = []
        self._level = 0  # of the sleep that the weights are in; 0: awake

    def sleep(self, level: int = 1) -> None:
        """Give back the weights and the key-value cache; raises NotImplementedError where level 1 could not wake again."""
        if level == 1 and not hasattr(self._loader(), "get_all_weights"):
            kind = self.vllm_config.load_config.load_format
            raise NotImplementedError(f"load_format={kind} can't read a checkpoint again: sleep with level 2 and sync")
        self._level = level
        self.discard(("kv_cache",))
        for module in self._packed():
            module.cpu_linear = _NoWeights.of(module)
        self._weights += _freed(self.model_runner.get_model().parameters())
        _give_back()

    def discard(self, tags: tuple[str, ...]) -> None:
        """Give back the key-value cache."""
        if "kv_cache" in tags:
            self._cache += _freed(self.model_runner.kv_caches)
            _give_back()

    def wake_up(self, tags: list[str] | None = None) -> None:
        """Take back what `tags` name, "weights" or "kv_cache" (None: both)."""
        if self._level and (tags is None or "weights" in tags):
            self._wake_weights(self._level)
        if tags is None or "kv_cache" in tags:
            _take_back(self._cache)

    def reload_weights(self, weights_iterator: Weights | None = None, weights_path: str | None = None, **how: Any) -> None:
        """Load these weights: given, of another directory, or (neither) those to wake up with; raises FileNotFoundError."""
        if self._weights:
            raise RuntimeError("the weights sleep: POST /wake_up?tags=weights before loading others")
        if weights_path is not None:
            if not Path(weights_path).is_dir():  # vLLM finds out half-way, and its engine ends with the next request
                raise FileNotFoundError(f"weights_path={weights_path!r} is no directory on the server's machine")
            self.model_config.model, self.model_config.revision = weights_path, None
        weights = self._checkpoint() if weights_iterator is None else weights_iterator
        super().reload_weights(weights_iterator=_without_head_bias(weights, self.model_runner.get_model()), **how)
        for module in self._packed():
            if isinstance(module.cpu_linear, _NoWeights):  # shares its weight with another one, and none is in the checkpoint
                module.quant_method.process_weights_after_loading(module)
        _give_back()

    def committed_updates(self) -> Mapping[str, torch.Tensor]:
        """Return the weights, by their name in the checkpoint, that were synced since the start and outlive a sleep: none yet."""
        return {}

    def _wake_weights(self, level: int) -> None:
        sizes, self._weights = self._weights, []
        _take_back(sizes)
        for parameter in self.model_runner.get_model().parameters():
            if parameter.is_floating_point():
                parameter.data.fill_(torch.nan)
        if level == 1:
            self.reload_weights()
        self._level = 0  # only now: a checkpoint that can't be read can be put back, and the waking tried again

    def _checkpoint(self) -> Weights:
        committed = self.committed_updates()
        for name, weight in self._loader().get_all_weights(self.model_config, self.model_runner.get_model()):
            yield name, committed.get(name, weight)

    def _loader(self) -> Any:
        return get_model_loader(self.vllm_config.load_config)

    def _packed(self) -> list[Any]:
        """Return the modules whose weights live in a packed copy that only their `cpu_linear` refers to."""
        return [module for module in self.model_runner.get_model().modules() if "cpu_linear" in vars(module)]


def _without_head_bias(weights: Weights, model: torch.nn.Module) -> Weights:
    """Yield all but the bias of vLLM's own head, put in place here: the head's loader loses it when it loads a second time."""
    bias = dict(model.named_parameters()).get("score.bias")
    for name, weight in weights:
        if name == "score.bias" and bias is not None:
            bias.data.copy_(weight)
        else:
            yield name, weight


def _freed(tensors: Iterable[torch.Tensor]) -> Sizes:
    """Empty the tensors' storages and return the sizes that they had; what is empty or can't be resized stays as it is."""
    sizes: Sizes = []
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage.nbytes() and storage.resizable():
            sizes.append((storage, storage.nbytes()))
            storage.resize_(0)
    return sizes


def _take_back(sizes: Sizes) -> None:
    """Give each storage its size again, filled with zeros, and forget the sizes."""
    while sizes:
        storage, size = sizes.pop()
        storage.resize_(size)
        storage.fill_(0)  # what lay in the cache may be NaN, and 0 * NaN reaches who uses its block next


@dataclass(frozen=True, slots=True)
class _NoWeights:
    """Stands for a packed weight that was given back: its products are NaN."""

    outputs: int

    @classmethod
    def of(cls, module: torch.nn.Module) -> _NoWeights:
        weight = get_layerwise_info(module).restore_metadata[0].get("weight")  # the shape before it was packed
        return cls(weight.shape[0] if weight is not None else 1)

    def __call__(self, inputs: torch.Tensor, *_: Any) -> torch.Tensor:
        return inputs.new_full((*inputs.shape[:-1], self.outputs), torch.nan)


def _give_back() -> None:
    """Return freed memory to the operating system: glibc keeps what is below the top of its heap."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)

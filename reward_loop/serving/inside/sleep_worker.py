"""The CPU worker that can sleep: vLLM's own only logs that it can't.

Asleep, the key-value cache and every weight are given back to the operating system. Level 1 wakes with the checkpoint's weights,
read again, and the updates committed since then (main memory is what is to be freed: there is nowhere else to keep them); level 2
wakes with NaN for weights, so that nothing wrong can be computed before they are synced.

Invariant: modules, parameters and buffers stay the same objects; only their storage goes and comes. Buffers are kept, as no
checkpoint has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from vllm.model_executor.model_loader import get_model_loader
from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info
from vllm.v1.worker.cpu_worker import CPUWorker

from reward_loop.serving.inside.committed_weights import CommittedWeights
from reward_loop.serving.inside.memory import blocks_reused, give_back
from reward_loop.serving.inside.model_loading import without_head_bias
from reward_loop.serving.inside.packed_weights import NoWeights, packed_weights, repack_shared
from reward_loop.serving.inside.seeded_prefill import guard_if_needed
from reward_loop.serving.inside.staged_file import Weights
from reward_loop.serving.inside.transfer_backend import register_backend
from reward_loop.serving.inside.update_directory import UpdateDirectory

Sizes = list[tuple[Any, int]]
"""Emptied storages (torch.UntypedStorage, whose `fill_` its stubs don't know) and the bytes that each had."""

# Where vLLM's plugins are switched off (VLLM_PLUGINS), the worker is still ours.
guard_if_needed()
register_backend()


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
        model = self.model_runner.get_model()
        for module in packed_weights(model):
            module.cpu_linear = _no_weights(module)
        self._weights += _freed(model.parameters())
        give_back()

    def discard(self, tags: tuple[str, ...]) -> None:
        """Give back the key-value cache."""
        if "kv_cache" in tags:
            self._cache += _freed(self.model_runner.kv_caches)
            give_back()

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
            self._directory().forget()  # what was synced is no update of this checkpoint
        model = self.model_runner.get_model()
        weights, packed = self._checkpoint() if weights_iterator is None else weights_iterator, packed_weights(model)
        with blocks_reused():
            super().reload_weights(weights_iterator=without_head_bias(weights, model), **how)
            repack_shared(packed)

    def committed_updates(self) -> Mapping[str, torch.Tensor]:
        """Return the weights, by their name in the checkpoint, that were synced and outlive a sleep; raises WeightSyncError."""
        directory = self._directory()
        return CommittedWeights(directory, directory.record())

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

    def _directory(self) -> UpdateDirectory:
        return UpdateDirectory.of(self.vllm_config.instance_id)


def _no_weights(module: torch.nn.Module) -> NoWeights:
    weight = get_layerwise_info(module).restore_metadata[0].get("weight")  # the shape before it was packed
    return NoWeights(weight.shape[0] if weight is not None else 1)


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

"""The weights that serve: vLLM's model in memory, the checkpoint that it was loaded from, and the updates committed since.

Invariant: what the update directory's record says is what serves, except while an update is being loaded.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from reward_loop.serving.inside.committed_weights import CommittedWeights
from reward_loop.serving.inside.known_weights import KnownWeights
from reward_loop.serving.inside.model_loading import load
from reward_loop.serving.inside.packed_weights import NoWeights, packed_weights
from reward_loop.serving.inside.served_checkpoint import checkpoint_weights, known_weights
from reward_loop.serving.inside.staged_file import Weights
from reward_loop.serving.inside.update_directory import Record, UpdateDirectory


class ServedModel:
    """The model of this worker, which holds its share of the weights."""

    def __init__(self, vllm_config: Any, model: torch.nn.Module, directory: UpdateDirectory) -> None:
        self._vllm_config = vllm_config
        self._model = model
        self._directory = directory
        self._known: tuple[str, KnownWeights] | None = None

    @property
    def asleep(self) -> bool:
        """Whether the weights were given back to the operating system."""
        return any(each.numel() and not each.untyped_storage().nbytes() for each in self._model.parameters())

    @property
    def dropped(self) -> bool:
        """Whether there are no weights, only room for them."""
        return any(isinstance(module.cpu_linear, NoWeights) for module in packed_weights(self._model))

    def known(self) -> KnownWeights:
        """Return what an update may hold."""
        path = str(self._vllm_config.model_config.model)  # another one once a directory was loaded by reload_weights
        if self._known is None or self._known[0] != path:
            self._known = path, known_weights(self._vllm_config, self._model)
        return self._known[1]

    def load(self, weights: Weights, names: Collection[str]) -> None:
        """Load the weights of these names; raises whatever vLLM's loader raises, and then some of them are in."""
        known = self.known()
        load(self._vllm_config, self._model, weights, head=names if all(map(known.is_head, names)) else ())

    def load_recorded(self, record: Record, names: Collection[str]) -> None:
        """Load these weights as they are by a record; raises WeightSyncError for a file that is damaged."""
        self.load(self._recorded(record, names), names)

    def start(self) -> None:
        """Load what was committed before this process was; raises WeightSyncError for a file that is damaged."""
        record = self._directory.record()
        if record.tensors:
            self.load_recorded(record, record.tensors)

    def _recorded(self, record: Record, names: Collection[str]) -> Weights:
        committed = CommittedWeights(self._directory, record)
        for name in committed:
            if name in names:
                yield name, committed[name]
        if rest := set(names) - committed.keys():
            yield from checkpoint_weights(self._vllm_config, self._model, rest)

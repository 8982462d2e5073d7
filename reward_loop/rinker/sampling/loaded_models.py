"""Snapshots that are loaded: each a model of its own, which is never changed once it is there."""

from __future__ import annotations

import copy
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.loading_lock import LOADING
from reward_loop.rinker.sampler import Snapshot
from reward_loop.rinker.sampling.settings import HFSamplerSettings

_Loader: Any = AutoModelForCausalLM


class LoadedModels:
    """The snapshots that were asked last, at most `max_snapshots`, and one bare model for each base model. Of one thread.

    One whose weights are in memory goes with the last `Snapshot` that asked for it, as soon as another is loaded.
    """

    def __init__(self, settings: HFSamplerSettings) -> None:
        self._settings = settings
        self._device = settings.device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._dtype: Any = getattr(torch, settings.dtype) if settings.dtype else None
        self._models: OrderedDict[str, Any] = OrderedDict()
        self._askers: dict[str, weakref.ref[Snapshot]] = {}
        self._bases: dict[str, Any] = {}

    def model(self, snapshot: Snapshot) -> Any:
        """Return the model with exactly the snapshot's weights. Raises RequestFailedError where they do not fit."""
        if snapshot.id not in self._models:
            self._drop_forgotten()
            self._models[snapshot.id] = self._loaded(snapshot)
            while len(self._models) > self._settings.max_snapshots:
                self._models.popitem(last=False)
        if not (snapshot.weights is None or isinstance(snapshot.weights, Path)):
            self._askers[snapshot.id] = weakref.ref(snapshot)
        self._models.move_to_end(snapshot.id)
        return self._models[snapshot.id]

    def _drop_forgotten(self) -> None:
        """Drop what nobody can ask for any more: whoever held the snapshot has given it up."""
        for name in [name for name, asker in self._askers.items() if asker() is None or name not in self._models]:
            del self._askers[name]
            self._models.pop(name, None)

    def _loaded(self, snapshot: Snapshot) -> Any:
        try:
            return self._load(snapshot)
        except (
            OSError,
            ValueError,
            RuntimeError,
        ) as error:  # what transformers and torch raise for files and shapes that are wrong
            raise RequestFailedError(f"the weights of {snapshot.id} can't be loaded: {error}", category="server") from error

    def _load(self, snapshot: Snapshot) -> Any:
        if isinstance(snapshot.weights, Path):
            return self._read(str(snapshot.weights))
        if snapshot.base_model not in self._bases:
            self._bases[snapshot.base_model] = self._read(snapshot.base_model)
        base = self._bases[snapshot.base_model]
        return base if snapshot.weights is None else self._with_weights(base, snapshot.weights)

    def _read(self, name: str) -> Any:
        with LOADING:
            model = _Loader.from_pretrained(name, dtype=self._dtype or "auto", trust_remote_code=self._settings.trust_remote_code)
        return model.to(self._device).eval().requires_grad_(False)

    def _with_weights(self, base: Any, weights: Mapping[str, torch.Tensor]) -> Any:
        # The copy shares every tensor of the base until its own are put in their place, so that nothing is allocated twice.
        shared = {id(tensor): tensor for tensor in chain(base.parameters(), base.buffers())}
        model = copy.deepcopy(base, shared | {id(base.config): base.config})
        moved = {name: tensor.detach().to(self._device, self._dtype or tensor.dtype) for name, tensor in weights.items()}
        found = model.load_state_dict(moved, strict=False, assign=True)
        missing = set(found.missing_keys) - _tied(model)
        if missing or found.unexpected_keys:
            lacking = f"lack {sorted(missing)[:3]}" if missing else f"have {sorted(found.unexpected_keys)[:3]} besides"
            raise ValueError(f"they {lacking}; the names must be those of {type(model).__name__}, adapters merged in")
        if found.missing_keys:
            model.tie_weights()
        return model.eval().requires_grad_(False)


def _tied(model: Any) -> set[str]:
    """Return the names whose weights are those of others, so that a snapshot need not have them."""
    # From transformers 5 on by model; before, by class, whether or not the configuration ties them.
    if (names := getattr(model, "all_tied_weights_keys", None)) is None:
        names = getattr(model, "_tied_weights_keys", None) if model.config.get_text_config().tie_word_embeddings else ()
    return set(names or ())

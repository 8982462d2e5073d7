"""The weights that the served model takes, by their names in its checkpoint, and whether an update fits them.

vLLM computes some matrices as one (queries, keys and values; gate and up; the experts of a layer), and loads a layer as a whole:
of a layer that gets a part of what it needs, the rest would be whatever lay in memory. So each layer comes whole or not at all.

Invariant: no vLLM, no I/O.
"""

from __future__ import annotations

import difflib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

from reward_loop.errors import WeightSyncError
from reward_loop.sync.manifest import DTYPES, TensorSpec
from reward_loop.sync.training_mode import RewardModelTrainingMode

_NAMED = 10
"""Reasons that a message names."""
_HEADS = frozenset({"score", "classifier", "v_head", "value_head", "reward_head", "rm_head", "lm_head"})
"""Where names don't tell what the backbone is, what these begin is a head."""
HEAD_BIAS = "score.bias"
"""The one bias that may come without its weight: it is put in place by itself."""


@dataclass(frozen=True)
class KnownWeight:
    """A tensor of the checkpoint."""

    dtype: str
    """As torch calls it, without "torch."."""
    shape: tuple[int, ...]


@dataclass(frozen=True)
class KnownWeights:
    """The checkpoint's tensors, the members of each layer that is computed as one by its name, and what is never loaded."""

    weights: Mapping[str, KnownWeight]
    fused: Mapping[str, Sequence[str]]
    ignored: Set[str] = frozenset()

    def check(self, tensors: Sequence[TensorSpec], mode: str, *, dropped: bool = False) -> None:
        """Raise WeightSyncError, with the reasons, if these can't be loaded; `dropped`: there are no weights to add to."""
        if mode not in list(RewardModelTrainingMode):
            raise WeightSyncError(f"mode={mode!r} is unknown; give one of {', '.join(RewardModelTrainingMode)}")
        if dropped and mode != RewardModelTrainingMode.FULL:
            raise WeightSyncError(f"the weights were dropped (sleep level 2): only a full update brings them back, not {mode}")
        reasons = list(self._reasons(tensors, RewardModelTrainingMode(mode)))
        if reasons:
            named = "; ".join(reasons[:_NAMED])
            more = f"; and {len(reasons) - _NAMED} more" if len(reasons) > _NAMED else ""
            raise WeightSyncError(f"the update does not fit the served model: {named}{more}")

    def loaded(self, tensors: Sequence[TensorSpec]) -> list[str]:
        """Return the names of those that are loaded: a weight that another one stands for is not."""
        return [tensor.name for tensor in tensors if tensor.name not in self.ignored]

    def is_head(self, name: str) -> bool:
        """Say whether a weight is one of the head: it lies outside of the module that holds the layers."""
        first = name.partition(".")[0]
        return first in _HEADS if self._backbone is None else first != self._backbone

    def _reasons(self, tensors: Sequence[TensorSpec], mode: RewardModelTrainingMode) -> Iterator[str]:
        for tensor in tensors:
            if tensor.name not in self.ignored:
                yield from self._of_one(tensor, mode)
        given = {tensor.name for tensor in tensors}
        yield from self._incomplete(given)
        if mode is RewardModelTrainingMode.FULL:
            for name in self.weights:
                if name not in given and name not in self.ignored:
                    yield f"{name} is missing from a full update"

    def _of_one(self, tensor: TensorSpec, mode: RewardModelTrainingMode) -> Iterator[str]:
        known = self.weights.get(tensor.name)
        if known is None:
            near = difflib.get_close_matches(tensor.name, self.weights, n=1, cutoff=0.0)
            yield f"{tensor.name} is unknown" + "".join(f" (the nearest name is {name})" for name in near)
        elif tensor.shape != known.shape:
            yield f"{tensor.name} has the shape {tensor.shape}, the served one {known.shape}"
        elif known.dtype not in DTYPES:
            yield f"{tensor.name} is served as {known.dtype}: a quantised weight can't be updated, serve the model unquantised"
        elif mode is RewardModelTrainingMode.HEAD_ONLY and not self.is_head(tensor.name):
            yield f"{tensor.name} belongs to the backbone, a head_only update holds the head alone"

    def _incomplete(self, given: Set[str]) -> Iterator[str]:
        for layer, names in self._layers.items():
            came = [name for name in names if name in given]
            if not came or (layer, came) == ("score", [HEAD_BIAS]):
                continue
            biases = any(_is_bias(name) for name in came)
            missing = [name for name in names if name not in given and (biases or not _is_bias(name))]
            if missing:
                yield f"{layer} is loaded as a whole: {_listed(came)} came without {_listed(missing)}"

    @cached_property
    def _layers(self) -> Mapping[str, list[str]]:
        """The names of each layer that vLLM loads as a whole."""
        whole_of = {member: whole for whole, members in self.fused.items() for member in members}
        layers = defaultdict[str, list[str]](list)
        for name in self.weights:
            if name in self.ignored:
                continue
            path, _, _ = name.rpartition(".")
            before, experts, _ = path.partition(".experts.")
            parent, dot, last = path.rpartition(".")
            layers[f"{before}.experts" if experts else parent + dot + whole_of.get(last, last)].append(name)
        return layers

    @cached_property
    def _backbone(self) -> str | None:
        """The first part of the names of the layers, which are numbered; None if these have no common parent."""
        found = Counter[str | None]()
        for name in self.weights:
            parts = name.split(".")
            numbered = next((at for at, part in enumerate(parts) if part.isdigit()), None)
            if numbered is not None:
                found[parts[0] if numbered > 1 else None] += 1
        return found.most_common(1)[0][0] if found else None


def _is_bias(name: str) -> bool:
    return name.rpartition(".")[2] == "bias"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")

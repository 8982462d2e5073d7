"""Which snapshots stay loaded: those asked last, but none that nobody has any more."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import torch

from reward_loop.rinker.sampler import Snapshot
from reward_loop.rinker.sampling.loaded_models import LoadedModels
from reward_loop.rinker.sampling.settings import HFSamplerSettings
from tests.rinker.sampling.policies import model_of, policy_with_learned_positions


def copied_weights(base: str) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model_of(base).state_dict().items()}


def test_weights_that_everybody_gave_up_are_dropped_for_the_next(tmp_path: Path) -> None:
    base = policy_with_learned_positions(tmp_path, positions=8)
    models = LoadedModels(HFSamplerSettings(device="cpu"))
    kept = Snapshot("kept", base, weights=copied_weights(base))
    loaded = models.model(kept)
    given_up = weakref.ref(models.model(Snapshot("given up", base, weights=copied_weights(base))))
    models.model(Snapshot("next", base, weights=copied_weights(base)))
    gc.collect()
    assert given_up() is None
    assert models.model(kept) is loaded


def test_a_saved_snapshot_stays_loaded_for_whoever_names_it_next(tmp_path: Path) -> None:
    base = policy_with_learned_positions(tmp_path, positions=8)
    models = LoadedModels(HFSamplerSettings(device="cpu", max_snapshots=2))
    saved = models.model(Snapshot("saved", base, weights=tmp_path))
    models.model(Snapshot("base", base))
    assert models.model(Snapshot("saved", base, weights=tmp_path)) is saved

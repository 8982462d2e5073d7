"""The tensors of a record, and records that lie."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from reward_loop.errors import WeightSyncError
from reward_loop.serving.inside.committed_weights import CommittedWeights
from reward_loop.serving.inside.update_directory import UpdateDirectory


def commit(directory: UpdateDirectory, version: int, *names: str) -> None:
    """Commit an update whose tensors are full of its version."""
    directory.path.mkdir(exist_ok=True)
    save_file({name: torch.full((2,), float(version)) for name in names}, directory.staged)
    directory.commit(version, names)


@pytest.fixture
def directory(tmp_path: Path) -> UpdateDirectory:
    """A directory with a full update and then one of the head."""
    directory = UpdateDirectory(tmp_path / "updates")
    commit(directory, 1, "backbone", "score")
    commit(directory, 2, "score")
    return directory


def test_each_tensor_is_that_of_the_last_update_that_held_it(directory: UpdateDirectory) -> None:
    weights = CommittedWeights(directory, directory.record())
    assert {name: float(weights[name][0]) for name in weights} == {"backbone": 1.0, "score": 2.0}
    assert weights.get("other") is None


@pytest.mark.parametrize("damage", ["truncated", "missing", "other tensors", "no safetensors"])
def test_a_damaged_file_is_named_with_the_remedy(directory: UpdateDirectory, damage: str) -> None:
    file = directory.path / directory.record().tensors["backbone"]
    match damage:
        case "truncated":
            file.write_bytes(file.read_bytes()[:-1])
        case "missing":
            file.unlink()
        case "other tensors":
            save_file({"score": torch.zeros(1)}, file)
        case _:
            file.write_bytes(b"")
    with pytest.raises(WeightSyncError, match=rf"{file.name}, which holds committed weights, can't be used .*; remove "):
        CommittedWeights(directory, directory.record())

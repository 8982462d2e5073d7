"""The file of an update, whose pages come and go."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from reward_loop.serving.inside.staged_file import StagedFile
from reward_loop.sync.manifest import Manifest, TensorSpec

MANIFEST = Manifest.of(
    [TensorSpec("half", "bfloat16", (3, 5)), TensorSpec("whole", "float32", (40_000,)), TensorSpec("one", "float32", ())],
    bucket_bytes=16 * 1024,
)


def fill(staged: StagedFile) -> None:
    """Fill each bucket with its number, as bytes."""
    for index in range(MANIFEST.buckets):
        staged.write(index, torch.full((MANIFEST.bucket_size(index),), index, dtype=torch.uint8))


def test_buckets_make_up_the_stream(tmp_path: Path) -> None:
    staged = StagedFile.create(tmp_path / "new" / "x", MANIFEST)
    fill(staged)
    assert MANIFEST.buckets == 10
    stream = torch.cat([staged.bucket(index) for index in range(MANIFEST.buckets)])
    assert stream.numel() == MANIFEST.nbytes
    assert all(staged.bucket(index).data_ptr() % 64 == 0 for index in range(MANIFEST.buckets))
    found = dict(staged.weights(["half", "one", "whole"]))
    assert {name: (str(tensor.dtype), tuple(tensor.shape)) for name, tensor in found.items()} == {
        "half": ("torch.bfloat16", (3, 5)),
        "whole": ("torch.float32", (40_000,)),
        "one": ("torch.float32", ()),
    }
    assert torch.equal(found["whole"].view(torch.uint8), stream[:160_000])
    with safe_open(tmp_path / "new" / "x", framework="pt") as file:
        assert all(torch.equal(file.get_tensor(name), tensor) for name, tensor in found.items())


def test_pages_that_were_released_come_again(tmp_path: Path) -> None:
    staged = StagedFile.create(tmp_path / "x", MANIFEST)
    fill(staged)
    assert len(dict(staged.weights(["half", "whole", "one"]))) == 3  # which releases all that it has yielded
    assert [int(staged.bucket(index)[-1]) for index in range(MANIFEST.buckets)] == list(range(MANIFEST.buckets))
    assert torch.equal(StagedFile(tmp_path / "x", MANIFEST).bucket(7), staged.bucket(7))  # another rank sees the same


def test_only_what_is_asked_for_is_yielded(tmp_path: Path) -> None:
    assert [name for name, _ in StagedFile.create(tmp_path / "x", MANIFEST).weights(["half"])] == ["half"]


def test_who_writes_to_an_aborted_update_does_not_write_to_the_next(tmp_path: Path) -> None:
    late, staged = (StagedFile.create(tmp_path / "x", MANIFEST) for _ in range(2))
    fill(late)
    assert not any(staged.bucket(index).any() for index in range(MANIFEST.buckets))


def test_without_room_nothing_is_left(tmp_path: Path) -> None:
    huge = Manifest.of([TensorSpec("x", "float32", (2**46,))], bucket_bytes=2**30)
    with pytest.raises(OSError, match=r"no room for 281474977 MB: .*staged"):
        StagedFile.create(tmp_path / "staged", huge)
    assert not list(tmp_path.iterdir())

"""Which tensor of a bucket is not finite."""

from __future__ import annotations

import pytest
import torch

from reward_loop.sync.finite import first_not_finite
from reward_loop.sync.packing import pack
from tests.sync.planes.ends import manifest_of, weights

BUCKET_BYTES = 1 << 12


def found(tensors: dict[str, torch.Tensor]) -> list[str | None]:
    """What it says of each bucket."""
    manifest = manifest_of(tensors, BUCKET_BYTES)
    names = list[str | None]()
    for index, pieces in enumerate(manifest.pieces):
        bucket = torch.zeros(manifest.bucket_size(index), dtype=torch.uint8)
        pack(bucket, pieces, tensors)
        names.append(first_not_finite(bucket, pieces))
    return names


def test_finite_weights_are_passed_also_the_largest_and_the_smallest() -> None:
    extremes = {
        str(dtype): torch.tensor([torch.finfo(dtype).max, torch.finfo(dtype).min, -0.0, torch.finfo(dtype).tiny], dtype=dtype)
        for dtype in (torch.float32, torch.bfloat16, torch.float16)
    }
    assert set(found(weights() | extremes)) == {None}


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(
    ("name", "at"), [("norm", 0), ("norm", 6), ("layer.bias", 200), ("score", 63), ("scale", 0), ("embed", 40959)]
)
def test_one_bad_element_is_found_in_its_bucket_and_its_tensor(name: str, at: int, bad: float) -> None:
    tensors = weights()
    tensors[name].view(-1)[at] = bad
    names = found(tensors)
    assert [each for each in names if each is not None] == [name]


def test_the_first_of_several_is_named() -> None:
    tensors = weights()
    for name in ("score", "layer.bias"):
        tensors[name].view(-1)[1] = float("nan")
    assert [each for each in found(tensors) if each is not None] == ["layer.bias"]


@pytest.mark.gpu
def test_it_is_found_on_a_gpu() -> None:
    tensors = {"score": torch.full((8,), float("nan"))}
    manifest = manifest_of(tensors)
    assert first_not_finite(tensors["score"].cuda().view(torch.uint8), manifest.pieces[0]) == "score"

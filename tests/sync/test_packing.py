"""Tensors become the bytes of a safetensors file, in buckets of any size, wherever they lie and however they are strided."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from reward_loop.errors import WeightSyncError
from reward_loop.sync.manifest import Manifest
from reward_loop.sync.packing import pack, unpack
from tests.sync.planes.ends import manifest_of, stream_of, weights


def packed(manifest: Manifest, tensors: dict[str, torch.Tensor], device: str = "cpu") -> torch.Tensor:
    """The stream."""
    buckets: list[torch.Tensor] = []
    for index, pieces in enumerate(manifest.pieces):
        bucket = torch.full((manifest.bucket_size(index),), 0xAA, dtype=torch.uint8, device=device)
        pack(bucket, pieces, tensors)
        buckets.append(bucket.cpu())
    return torch.cat(buckets)


@pytest.mark.parametrize("bucket_bytes", [64, 192, 4096, 1 << 20])
def test_a_stream_is_the_data_of_a_safetensors_file(bucket_bytes: int, tmp_path: Path) -> None:
    manifest = manifest_of(weights(), bucket_bytes)
    stream = packed(manifest, weights())
    assert stream.numpy().tobytes() == stream_of(weights())
    (tmp_path / "weights.safetensors").write_bytes(manifest.safetensors_header({"format": "pt"}) + stream.numpy().tobytes())
    for found in (load_file(tmp_path / "weights.safetensors"), dict(unpack(stream, manifest))):
        assert found.keys() == weights().keys()
        for name, tensor in weights().items():
            assert found[name].dtype is tensor.dtype
            assert torch.equal(found[name], tensor)


@settings(max_examples=80)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
    st.sampled_from([torch.float32, torch.bfloat16]),
    st.booleans(),
)
def test_strides_do_not_matter(shape: list[int], random: object, dtype: torch.dtype, spread: bool) -> None:
    order = list(range(len(shape)))
    random.shuffle(order)  # type: ignore[attr-defined]
    stored = torch.arange(torch.Size(shape).numel() * (2 if spread else 1), dtype=dtype)
    tensor = (stored[::2] if spread else stored).reshape(shape).permute(order)
    manifest = manifest_of({"weight": tensor}, 64)
    [(_, found)] = unpack(packed(manifest, {"weight": tensor}), manifest)
    assert torch.equal(found, tensor)


def test_a_large_transposed_matrix_arrives_in_the_order_of_its_rows() -> None:
    tensor = torch.arange(300 * 70, dtype=torch.float32).view(70, 300).t()
    manifest = manifest_of({"weight": tensor}, 1024)
    [(_, found)] = unpack(packed(manifest, {"weight": tensor}), manifest)
    assert torch.equal(found, tensor)


def test_parameters_that_train_can_be_packed_and_stay_as_they_are() -> None:
    parameter = torch.nn.Parameter(torch.randn(3, 4))
    before = parameter.detach().clone()
    stream = packed(manifest_of({"weight": parameter}), {"weight": parameter})
    assert not stream.requires_grad
    assert torch.equal(parameter, before)


@pytest.mark.parametrize(
    ("tensors", "why"),
    [
        ({}, "weight is in the manifest, but not among the tensors to send"),
        ({"weight": torch.zeros(2, 3, dtype=torch.float64)}, r"weight is float64 \(2, 3\), the manifest says float32 \(2, 3\)"),
        ({"weight": torch.zeros(3, 2)}, r"weight is float32 \(3, 2\), the manifest says float32 \(2, 3\)"),
    ],
)
def test_what_the_manifest_does_not_say_is_refused(tensors: dict[str, torch.Tensor], why: str) -> None:
    manifest = manifest_of({"weight": torch.zeros(2, 3)})
    with pytest.raises(WeightSyncError, match=why):
        pack(torch.zeros(24, dtype=torch.uint8), manifest.pieces[0], tensors)


@pytest.mark.gpu
@pytest.mark.parametrize(("source", "bucket"), [("cuda", "cuda"), ("cuda", "cpu"), ("cpu", "cuda")])
def test_devices_do_not_matter(source: str, bucket: str) -> None:
    tensors = {name: tensor.to(source) for name, tensor in weights().items()}
    assert packed(manifest_of(tensors), tensors, bucket).numpy().tobytes() == stream_of(weights())

"""The layout of an update: both ends derive the same one, and every byte has its place."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reward_loop.errors import WeightSyncError
from reward_loop.sync.manifest import ALIGNMENT, DTYPES, Manifest, TensorSpec

SPECS = st.lists(
    st.builds(
        TensorSpec,
        st.text(st.characters(codec="ascii", categories=["L", "N"], include_characters="._"), min_size=1, max_size=12),
        st.sampled_from(sorted(DTYPES)),
        st.lists(st.integers(1, 9), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda spec: spec.name,
)
BUCKETS = st.integers(1, 20).map(lambda number: number * ALIGNMENT)


@settings(max_examples=50)
@given(SPECS, BUCKETS)
def test_every_byte_of_every_tensor_has_one_place(specs: list[TensorSpec], bucket_bytes: int) -> None:
    manifest = Manifest.of(specs, bucket_bytes)
    assert len(manifest.pieces) == manifest.buckets
    found = dict.fromkeys((spec.name for spec in specs), 0)
    for index, pieces in enumerate(manifest.pieces):
        at = 0
        for piece in pieces:
            assert piece.in_bucket == at
            assert piece.in_tensor == found[piece.tensor.name]
            assert index * bucket_bytes + at == manifest.offsets[piece.tensor.name] + piece.in_tensor
            assert at % DTYPES[piece.tensor.dtype].itemsize == 0
            assert piece.nbytes % DTYPES[piece.tensor.dtype].itemsize == 0
            at += piece.nbytes
            found[piece.tensor.name] += piece.nbytes
        assert at == manifest.bucket_size(index)
    assert found == {spec.name: spec.nbytes for spec in specs}
    assert sum(manifest.bucket_size(index) for index in range(manifest.buckets)) == manifest.nbytes


@settings(max_examples=50)
@given(SPECS, BUCKETS)
def test_it_comes_back_from_json_with_the_same_layout(specs: list[TensorSpec], bucket_bytes: int) -> None:
    manifest = Manifest.of(specs, bucket_bytes)
    again = Manifest.from_json(json.loads(json.dumps(manifest.as_json())))
    assert again == manifest
    assert again.pieces == manifest.pieces


@settings(max_examples=50)
@given(SPECS, BUCKETS)
def test_the_header_is_aligned_and_has_every_tensor(specs: list[TensorSpec], bucket_bytes: int) -> None:
    manifest = Manifest.of(specs, bucket_bytes)
    header = manifest.safetensors_header({"format": "pt"})
    assert len(header) % ALIGNMENT == 0
    assert int.from_bytes(header[:8], "little") == len(header) - 8
    described = json.loads(header[8:])
    assert described.pop("__metadata__") == {"format": "pt"}
    assert {name: each["data_offsets"][0] for name, each in described.items()} == manifest.offsets


@pytest.mark.parametrize(
    ("specs", "bucket_bytes", "why"),
    [
        ([], 64, "holds no tensor"),
        ([TensorSpec("a", "float32", (1,))], 63, "must be a positive multiple of 64"),
        ([TensorSpec("a", "float32", (1,))], 0, "must be a positive multiple of 64"),
        ([TensorSpec("a", "float64", (1,))], 64, "a is float64; a served weight is one of float32, bfloat16, float16: cast it"),
        ([TensorSpec("a", "float32", (2, 0))], 64, r"a has the shape \(2, 0\): it is empty"),
        ([TensorSpec("a", "float32", (1,)), TensorSpec("a", "float16", (1,))], 64, "names a twice"),
    ],
)
def test_what_can_not_be_served_is_refused(specs: list[TensorSpec], bucket_bytes: int, why: str) -> None:
    with pytest.raises(WeightSyncError, match=why):
        Manifest.of(specs, bucket_bytes)


@pytest.mark.parametrize("value", [None, [], {}, {"tensors": [{}], "bucket_bytes": 64}, {"tensors": 3, "bucket_bytes": 64}])
def test_what_is_no_manifest_is_refused(value: object) -> None:
    with pytest.raises(WeightSyncError, match="no manifest of an update"):
        Manifest.from_json(value)

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch

from reward_loop.data import DataProto


def equal(left: DataProto, right: DataProto) -> bool:
    if (left.tensor_names(), len(left), left.meta_info) != (right.tensor_names(), len(right), right.meta_info):
        return False
    for name in left.tensor_names():
        one, other = left.tensor(name), right.tensor(name)
        if one is None or other is None or one.dtype != other.dtype or not torch.equal(one, other):
            return False
    columns = {name: column.tolist() for name, column in left.non_tensor_batch.items()}
    return columns == {name: column.tolist() for name, column in right.non_tensor_batch.items()}


def mixed(rows: int) -> DataProto:
    tensors = {
        str(dtype): torch.arange(rows * 2).reshape(rows, 2).to(dtype)
        for dtype in (torch.int64, torch.uint8, torch.bool, torch.float16, torch.float32, torch.bfloat16)
    }
    tensors["transposed"] = torch.arange(rows * 2).reshape(2, rows).T
    return DataProto.from_dict(tensors, {"c": [{"row": row} for row in range(rows)]}, {"step": 1})


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize("data", [mixed(4), mixed(4)[1:3], mixed(4)[[3, 0]], mixed(4)[:0], mixed(4)[2:], DataProto()])
def test_a_round_trip_changes_nothing(data: DataProto, protocol: int) -> None:
    assert equal(pickle.loads(pickle.dumps(data, protocol=protocol)), data)


def test_a_round_trip_after_the_fields_were_read_changes_nothing() -> None:
    data = mixed(4)[1:]
    assert data.batch is not None
    data.batch["new"] = torch.ones(3)
    assert equal(pickle.loads(pickle.dumps(data)), data)


def test_an_item_travels_alone_with_what_was_written_into_it() -> None:
    item = mixed(4000)[2]
    assert item.batch is not None
    item.batch["new"] = torch.tensor(1.5)
    item.non_tensor_batch["list"] = [1, 2]
    sent = pickle.dumps(item)
    assert len(sent) < 20_000
    received = pickle.loads(sent)
    assert received.batch["torch.int64"].tolist() == [4, 5]
    assert received.batch["new"] == 1.5
    assert received.non_tensor_batch == {"c": {"row": 2}, "list": [1, 2]}


@pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16])
def test_a_slice_pickles_its_own_rows_only(dtype: torch.dtype) -> None:
    data = DataProto.from_dict({"t": torch.zeros(1000, 1000, dtype=dtype)}, {"c": ["x" * 1000] * 1000})
    assert len(pickle.dumps(data[5:6])) < 20_000


def test_tensors_go_out_of_band_without_a_copy() -> None:
    data = DataProto.from_dict({"t": torch.arange(10)})
    buffers: list[pickle.PickleBuffer] = []
    pickle.dumps(data[2:4], protocol=5, buffer_callback=buffers.append)
    tensor = data.tensor("t")
    assert tensor is not None
    assert np.shares_memory(np.frombuffer(buffers[0].raw(), dtype=np.int64), tensor.numpy())


def test_read_only_buffers_become_tensors_that_may_be_written() -> None:
    buffers: list[pickle.PickleBuffer] = []
    stream = pickle.dumps(mixed(3), protocol=5, buffer_callback=buffers.append)
    stored = [bytes(buffer.raw()) for buffer in buffers]
    first, second = pickle.loads(stream, buffers=stored), pickle.loads(stream, buffers=stored)
    first.tensor("torch.int64").fill_(9)
    assert equal(second, mixed(3))


def test_gradients_do_not_travel() -> None:
    data = DataProto.from_dict({"t": torch.ones(2, requires_grad=True) * 2})
    assert not pickle.loads(pickle.dumps(data)).tensor("t").requires_grad

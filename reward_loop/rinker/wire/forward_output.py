"""What `forward_backward` gives, as a message: records of arrays, each of the same field of several datums.

Invariants: the datums of one record have the same fields, types and trailing shapes, those of different records need not have the
same shapes; offsets count bytes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reward_loop.errors import DataError
from reward_loop.rinker.types import ForwardBackwardOutput, TensorData
from reward_loop.rinker.wire.protocol import messages, parsed, serialized
from reward_loop.rinker.wire.tensors import DTYPES, dtype_of, item_bytes, numbers, numbers_of

LossFnOutput = Mapping[str, TensorData]

_INT64 = np.dtype("<i8")


def encode_forward_output(output: ForwardBackwardOutput) -> bytes:
    """Return an output as bytes. Raises DataError where its datums have different fields."""
    if len({frozenset(fields) for fields in output.loss_fn_outputs}) > 1:
        raise DataError("the loss gave different fields for different datums; it must give the same for all")
    message = messages.ForwardBackwardOutput(loss_fn_output_type=output.loss_fn_output_type, metrics=output.metrics)
    for _, alike in itertools.groupby(output.loss_fn_outputs, _kind):
        _encode_record(message.loss_fn_outputs.add(type_tag=output.loss_fn_output_type), list(alike))
    return serialized(message)


def decode_forward_output(body: bytes) -> ForwardBackwardOutput:
    """Return bytes as an output. Raises DataError for bytes that are none, or contradict themselves."""
    message = parsed(messages.ForwardBackwardOutput, body)
    outputs = [fields for record in message.loss_fn_outputs for fields in _decode_record(record)]
    return ForwardBackwardOutput(message.loss_fn_output_type, outputs, dict(message.metrics.items()))


def _kind(fields: LossFnOutput) -> Mapping[str, object]:
    return {name: (tensor.dtype, tensor.shape[1:]) for name, tensor in fields.items()}


def _encode_record(record: messages.ArrayRecord, alike: Sequence[LossFnOutput]) -> None:
    record.num_datums = len(alike)
    for name, first in alike[0].items():
        parts = [numbers_of(fields[name].to_numpy(), first.dtype) for fields in alike]
        field = record.fields[name]
        field.dtype = DTYPES[first.dtype]
        field.data = b"".join(parts)
        field.offsets = np.cumsum([0, *map(len, parts)], dtype=_INT64).tobytes()
        field.trailing_shape.extend(first.shape[1:])


def _decode_record(record: messages.ArrayRecord) -> list[LossFnOutput]:
    fields = {name: _decode_field(field, f"field {name!r:.80}") for name, field in record.fields.items()}
    count = record.num_datums or max(map(len, fields.values()), default=0)
    for name, tensors in fields.items():
        if len(tensors) != count:
            raise DataError(f"field {name!r:.80} is given for {len(tensors)} of {count} datums")
    return [{name: tensors[index] for name, tensors in fields.items()} for index in range(count)]


def _decode_field(field: messages.BatchedTensor, what: str) -> list[TensorData]:
    offsets = numbers(field.offsets, messages.DTYPE_INT64, f"offsets of {what}")
    size = item_bytes(field.dtype, what)
    if offsets.size and (offsets[0] != 0 or offsets[-1] != len(field.data) or (np.diff(offsets) < 0).any()):
        raise DataError(f"the offsets of {what} must rise from 0 to its {len(field.data)} bytes")
    trailing = list(field.trailing_shape)
    row_bytes = size * math.prod(trailing)
    if (offsets % max(row_bytes, 1)).any() or any(step < 0 for step in trailing):
        raise DataError(f"the offsets of {what} must be multiples of the {row_bytes} bytes of a row of the shape {trailing}")
    values = numbers(field.data, field.dtype, what)
    parts = itertools.pairwise((offsets // size).tolist())
    return [_shaped(values[start:end], trailing, field.dtype) for start, end in parts]


def _shaped(values: npt.NDArray[Any], trailing: Sequence[int], dtype: int) -> TensorData:
    rows = values.size // math.prod(trailing) if math.prod(trailing) else 0
    return TensorData(values, dtype_of(dtype), [rows, *trailing])

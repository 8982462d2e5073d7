"""How long each response really is.

Invariant: a length is read from `response_len`, or from a mask that does not contradict the prompts and responses
beside it: verl pads these three independently for the outputs of a trajectory, after which the last columns of the mask
may belong to other tokens.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from reward_loop.data.columns import Column
from reward_loop.data.proto import DataProto
from reward_loop.errors import DataError

Lengths = npt.NDArray[np.int64]

_INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
_REMEDY = "pass the number of response tokens of every row as response_len"


def response_lengths(data: DataProto) -> Lengths:
    """The number of valid response tokens of every row, int64 (B,), each between 0 and R.

    Taken from `response_len`, else from `attention_mask`, else R. Raises DataError where these contradict the shapes of
    `responses` and `prompts` or are not right-padded; the message names the row.
    """
    rows, width = _matrix(data, "responses").shape
    given = data.tensor("response_len")
    column = data.column("response_len") if given is None else given.detach().cpu().numpy()
    if column is not None:
        return _given_lengths(column, rows, width)
    if "attention_mask" in data.column_names():
        raise DataError(f"attention_mask is a non-tensor column (ragged?); make it a [B, P+R] tensor or {_REMEDY}")
    if data.tensor("attention_mask") is None:
        return np.full(rows, width, dtype=np.int64)
    mask = _matrix(data, "attention_mask", torch.bool).detach().cpu().numpy()
    prompt_width = mask.shape[1] - width
    if prompt_width < 0 or (data.tensor("prompts") is not None and _matrix(data, "prompts").shape[1] != prompt_width):
        raise DataError(
            f"attention_mask has {mask.shape[1]} columns, prompts and responses {_widths(data)}: "
            f"it is not aligned with them; {_REMEDY}"
        )
    return _mask_lengths(mask, prompt_width)


def _matrix(data: DataProto, name: str, *more_dtypes: torch.dtype) -> torch.Tensor:
    """The [B, width] integer tensor of this name."""
    tensor = data.tensor(name)
    if tensor is None:
        raise DataError(f"the batch has no tensor {name!r}; it has {sorted(data.tensor_names())}")
    if tensor.dim() != 2:
        raise DataError(f"{name} must be [rows, tokens]; its shape is {list(tensor.shape)}")
    if tensor.dtype not in _INTEGERS and tensor.dtype not in more_dtypes:
        raise DataError(f"{name} must hold integers; its dtype is {tensor.dtype}")
    return tensor


def _widths(data: DataProto) -> str:
    widths = [tensor.shape[1] for name in ("prompts", "responses") if (tensor := data.tensor(name)) is not None]
    return " + ".join(map(str, widths))


def _given_lengths(column: Column, rows: int, width: int) -> Lengths:
    lengths = np.array(column.tolist()) if column.dtype == object else column
    if lengths.shape != (rows,) or (lengths.dtype.kind not in "iu" and rows):
        raise DataError(f"response_len must be one integer per row; it is {column.tolist()!r:.200}")
    wrong = (lengths < 0) | (lengths > width)
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(f"response_len of row {row} is {lengths[row]}, but responses are 0 to {width} tokens long")
    return lengths.astype(np.int64)


def _mask_lengths(mask: Column, prompt_width: int) -> Lengths:
    """Lengths from a mask of prompt_width + R columns of 0 and 1."""
    ones = mask.astype(bool)
    if mask.size and (mask.min() < 0 or mask.max() > 1):
        _refuse((mask != ones).any(axis=1), "holds values other than 0 and 1; write 1 for tokens and 0 for padding")
    prompt, response = ones[:, :prompt_width], ones[:, prompt_width:]
    if prompt_width:
        _refuse(
            ~prompt[:, -1] & prompt.any(axis=1),
            f"ends its prompt part with padding, so it was not left-padded and may be misaligned; {_REMEDY}",
        )
    rises = response[:, 1:] > response[:, :-1]
    if rises.any():  # by row only where it matters: this runs for every batch
        _refuse(rises.any(axis=1), f"has a 1 after a 0 in its response part, which must be right-padded; {_REMEDY}")
    return np.asarray(response.sum(axis=1), dtype=np.int64)


def _refuse(rows: npt.NDArray[np.bool_] | np.bool_, problem: str) -> None:
    if rows.any():
        raise DataError(f"attention_mask of row {int(rows.argmax())} {problem}")

"""One sequence to train on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from reward_loop.errors import DataError
from reward_loop.rinker.types.model_input import ModelInput
from reward_loop.rinker.types.tensor_data import TensorData, TensorDtype

_OF_LISTS: dict[str, TensorDtype] = {
    "target_tokens": "int64",
    "weights": "float32",
    "advantages": "float32",
    "logprobs": "float32",
    "clip_low_threshold": "float32",
    "clip_high_threshold": "float32",
    "sequence_ratio_mask": "float32",
    "mask": "float32",
    "sampling_logprobs": "float32",
    "rejected_tokens": "int64",
    "margin": "float32",
}
"""What a plain list is taken for; by any other key a TensorData says itself what it is."""


TensorLike: TypeAlias = (
    "TensorData | torch.Tensor | npt.NDArray[Any] | list[int] | list[float] | list[list[int]] | list[list[float]]"
)


@dataclass(frozen=True, slots=True, init=False)
class Datum:
    """What the model reads, and what its loss is made of: position i of `target_tokens` is what should follow token i.

    Lists, arrays and tensors in `loss_fn_inputs` become TensorData. Raises DataError for what is none of these.
    """

    model_input: ModelInput
    loss_fn_inputs: Mapping[str, TensorData]

    def __init__(self, model_input: ModelInput, loss_fn_inputs: Mapping[str, TensorLike] | None = None) -> None:
        object.__setattr__(self, "model_input", model_input)
        made = {key: _tensor(key, value) for key, value in (loss_fn_inputs or {}).items()}
        object.__setattr__(self, "loss_fn_inputs", made)


def _tensor(key: str, value: Any) -> TensorData:
    if isinstance(value, TensorData):
        return value
    if isinstance(value, torch.Tensor):
        return TensorData.from_torch_sparse(value) if key in ("target_tokens", "weights") else TensorData.from_torch(value)
    if isinstance(value, np.ndarray):
        return TensorData.from_numpy(value)
    if not isinstance(value, list):
        raise DataError(f"loss_fn_inputs[{key!r}] is a {type(value).__name__}; give a list, an array, a tensor or a TensorData")
    if key not in _OF_LISTS:
        raise DataError(f"loss_fn_inputs[{key!r}] is a plain list, which only {', '.join(_OF_LISTS)} may be; give a TensorData")
    return TensorData(value, _OF_LISTS[key])

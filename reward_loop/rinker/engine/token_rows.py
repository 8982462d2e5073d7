"""From data to rows for a language model; see `checking` for what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import torch

from reward_loop.rinker.engine.checking import (
    Limits,
    check_keys,
    check_shape,
    check_some,
    floats,
    integers,
    model_tokens,
    refusal,
)
from reward_loop.rinker.engine.rows import TokenRow
from reward_loop.rinker.losses.loss import TokenLoss
from reward_loop.rinker.types import Datum, TensorData

_ALIASES = {"sampling_logprobs": "logprobs"}
"""The seed's names of inputs."""


def token_rows(data: Sequence[Datum], loss: TokenLoss, limits: Limits) -> list[TokenRow]:
    """Check all data; raises RequestFailedError ("user") for the first that can't be trained on."""
    check_some(data)
    rows = [_row(index, datum, loss, limits) for index, datum in enumerate(data)]
    for index, row in enumerate(rows):
        if other := sorted(row.inputs.keys() ^ rows[0].inputs.keys()):
            raise refusal(f"only one of data[0] and data[{index}] has {' and '.join(other)}; give it with all data or with none")
    return rows


def _row(index: int, datum: Datum, loss: TokenLoss, limits: Limits) -> TokenRow:
    tokens = model_tokens(index, datum, limits)
    inputs = _renamed(index, datum.loss_fn_inputs)
    check_keys(index, inputs, ("target_tokens", *loss.required), loss.known)
    targets = _targets(index, inputs["target_tokens"], loss, len(tokens), limits)
    found = {key: _input(index, key, value, targets.shape) for key, value in inputs.items() if key != "target_tokens"}
    if loss.many_targets:
        found.setdefault("weights", np.ones(targets.shape, dtype=np.float32))
    _spread(index, found, len(tokens))
    many = targets.ndim == 2
    wide = targets if many else targets[:, None]
    if loss.many_targets and not many:
        found["weights"] = found["weights"][:, None]
    return TokenRow(tokens, torch.tensor(wide), {key: torch.tensor(value) for key, value in found.items()}, many)


def _renamed(index: int, inputs: Mapping[str, TensorData]) -> dict[str, TensorData]:
    if both := [f"{old} and {new}" for old, new in _ALIASES.items() if old in inputs and new in inputs]:
        raise refusal(f"data[{index}].loss_fn_inputs has {both[0]}, which are two names of one input; give one")
    return {_ALIASES.get(key, key): value for key, value in inputs.items()}


def _targets(index: int, value: TensorData, loss: TokenLoss, length: int, limits: Limits) -> npt.NDArray[np.int64]:
    targets = integers(index, "target_tokens", value, limits)
    wanted = (length, *targets.shape[1:]) if loss.many_targets and targets.ndim == 2 else (length,)
    check_shape(index, "target_tokens", targets.shape, wanted, f"model_input has {length} tokens")
    if targets.ndim == 2 and not targets.shape[1]:
        raise refusal(f"data[{index}].loss_fn_inputs['target_tokens'] has 0 targets per token; give at least one")
    return targets


def _input(index: int, key: str, value: TensorData, shape: Sequence[int]) -> npt.NDArray[np.float32]:
    array = floats(index, key, value)
    if key == "advantages" and array.size == 1 and array.shape != tuple(shape):
        return array.reshape(())  # one for the whole sequence
    check_shape(index, key, array.shape, shape, "it goes with target_tokens")
    return array


def _spread(index: int, found: dict[str, npt.NDArray[np.float32]], length: int) -> None:
    """Give the one advantage of a sequence to each of its sampled tokens."""
    advantages = found.get("advantages")
    if advantages is None or advantages.ndim:
        return
    sampled = found["mask"] if "mask" in found else found["logprobs"]
    found["advantages"] = np.where(sampled != 0, advantages, np.float32(0))

"""Looking at data before anything is done with them: what is wrong is said of a datum, by its number and its key."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.types import Datum, TensorData


@dataclass(frozen=True, slots=True)
class Limits:
    """What a model can read."""

    vocabulary: int
    length: int | None
    """Most tokens of a sequence; None: any number."""
    labels: int = 0
    """Scores of its head; 0 of a language model."""


def refusal(message: str) -> RequestFailedError:
    """Return the error for a request that its sender has to mend."""
    return RequestFailedError(message, category="user")


def check_some(data: Sequence[Datum]) -> None:
    """Refuse a call without data."""
    if not data:
        raise refusal("data is empty; give at least one Datum")


def model_tokens(index: int, datum: Datum, limits: Limits) -> list[int]:
    """Return the tokens that the model reads, checked."""
    return checked_tokens(f"data[{index}].model_input", datum.model_input.to_ints(), limits)


def checked_tokens(where: str, tokens: Sequence[int], limits: Limits) -> list[int]:
    """Return tokens that are some, all in the vocabulary, and not too many."""
    if not tokens:
        raise refusal(f"{where} has no token; give at least one")
    if limits.length is not None and len(tokens) > limits.length:
        raise refusal(f"{where} has {len(tokens)} tokens and the model takes {limits.length}; shorten it")
    numbers = np.asarray(tokens)
    if numbers.dtype.kind not in "iu":
        raise refusal(f"{where} holds something other than token ids: {list(tokens)!r:.80}")
    _check_vocabulary(where, numbers, limits)
    return [int(token) for token in tokens]


def check_keys(index: int, inputs: Mapping[str, TensorData], required: Collection[str], known: Collection[str]) -> None:
    """Refuse keys that the loss does not read, and the lack of those that it needs."""
    has = ", ".join(sorted(inputs)) or "none"
    if missing := [key for key in required if key not in inputs]:
        raise refusal(f"data[{index}].loss_fn_inputs lacks {' and '.join(missing)}; it has {has}")
    if unknown := [key for key in inputs if key not in known]:
        raise refusal(
            f"data[{index}].loss_fn_inputs[{unknown[0]!r}] is not read by this loss, which knows {', '.join(known)}; leave it out"
        )


def integers(index: int, key: str, value: TensorData, limits: Limits) -> npt.NDArray[np.int64]:
    """Return token ids of any shape, all in the vocabulary."""
    where = f"data[{index}].loss_fn_inputs[{key!r}]"
    array = _array(where, value, "int64")
    _check_vocabulary(where, array, limits)
    return array


def floats(index: int, key: str, value: TensorData) -> npt.NDArray[np.float32]:
    """Return finite numbers of any shape."""
    where = f"data[{index}].loss_fn_inputs[{key!r}]"
    array = _array(where, value, "float32")
    finite = np.isfinite(array)
    if not finite.all():
        first = [int(at) for at in np.argwhere(~finite)[0]]
        shown = first[0] if len(first) == 1 else first
        raise refusal(f"{where} is {array[tuple(first)]} at position {shown}; only finite numbers can be trained on")
    return array


def check_shape(index: int, key: str, got: Sequence[int], wanted: Sequence[int], why: str) -> None:
    """Refuse an array of another shape than `wanted`, which is so because of `why`."""
    if tuple(got) != tuple(wanted):
        raise refusal(f"data[{index}].loss_fn_inputs[{key!r}] has shape {list(got)} and must have {list(wanted)}: {why}")


def _array(where: str, value: TensorData, dtype: str) -> npt.NDArray[Any]:
    if value.dtype != dtype:
        raise refusal(f"{where} is of dtype {value.dtype}; give it as {dtype}")
    try:
        return value.to_numpy()
    except (IndexError, ValueError) as error:  # a sparse tensor whose indices lie outside of its shape, or don't fit its values
        raise refusal(f"{where} of shape {value.shape} can't be read: {error}") from error


def _check_vocabulary(where: str, numbers: npt.NDArray[Any], limits: Limits) -> None:
    bad = (numbers < 0) | (numbers >= limits.vocabulary)
    if bad.any():
        raise refusal(
            f"{where} holds token {int(numbers[bad][0])}, which is none of the model's {limits.vocabulary} (0 to "
            f"{limits.vocabulary - 1}); was it encoded by another tokenizer?"
        )

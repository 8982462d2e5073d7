"""From conversations to data for cross entropy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from reward_loop.errors import DataError
from reward_loop.rinker.loops.json_rows import read_rows
from reward_loop.rinker.rendering import Renderer, TrainOnWhat
from reward_loop.rinker.sl.config import ConversationsConfig
from reward_loop.rinker.types import Datum, ModelInput

_RAISE = "raise max_tokens up to what the model takes"


def supervised_datum(model_input: ModelInput, weights: torch.Tensor) -> Datum:
    """Return what `build_supervised_example` gave as the client takes it: each token is to be said by the one before it."""
    tokens = model_input.to_ints()
    if len(tokens) != len(weights) or len(tokens) < 2:
        raise DataError(f"{len(tokens)} tokens have {len(weights)} weights; there must be at least two, and a weight for each")
    inputs: Any = {"target_tokens": np.asarray(tokens[1:], dtype=np.int64), "weights": weights[1:].float().numpy()}
    return Datum(ModelInput.from_ints(tokens[:-1]), inputs)


def read_conversations(path: str, config: ConversationsConfig, renderer: Renderer, what: TrainOnWhat) -> list[Datum]:
    """Read and render every conversation of a file. DataError names the row that is none, or too long."""
    data: list[Datum] = []
    for number, row in enumerate(read_rows(path), 1):
        try:
            datum = _datum(row, config, renderer, what)
        except DataError as error:
            raise DataError(f"{path}, row {number}: {error.message}") from error
        data += [] if datum is None else [datum]
    if not data:
        raise DataError(f"{path}: every conversation is longer than {config.max_tokens} tokens; {_RAISE}")
    return data


def with_mean_weights(data: Sequence[Datum]) -> list[Datum]:
    """Return the data with weights that sum up to 1 over all of them."""
    total = sum(float(datum.loss_fn_inputs["weights"].to_numpy().sum()) for datum in data)
    return [_scaled(datum, 1.0 / total) for datum in data]


def _scaled(datum: Datum, factor: float) -> Datum:
    inputs: Any = {**datum.loss_fn_inputs, "weights": datum.loss_fn_inputs["weights"].to_numpy() * np.float32(factor)}
    return Datum(datum.model_input, inputs)


def _datum(row: Mapping[str, Any], config: ConversationsConfig, renderer: Renderer, what: TrainOnWhat) -> Datum | None:
    if config.messages_field not in row:
        raise DataError(f"there is no {config.messages_field!r}; it has {', '.join(row)}: set data.messages_field")
    model_input, weights = renderer.build_supervised_example(row[config.messages_field], what)
    limit = config.max_tokens
    if limit is not None and model_input.length > limit:
        if config.too_long == "drop":
            return None
        if config.too_long == "error":
            raise DataError(f"{model_input.length} tokens are more than {limit}; {_RAISE}, or set too_long")
        model_input, weights = ModelInput.from_ints(model_input.to_ints()[:limit]), weights[:limit]
        if not weights[1:].any():
            raise DataError(f"cut to {limit} tokens nothing of it is taught; {_RAISE}, or set too_long=drop")
    return supervised_datum(model_input, weights)

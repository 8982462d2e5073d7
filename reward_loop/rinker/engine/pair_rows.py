"""From data to pairs for a reward model; see `checking` for what is refused."""

from __future__ import annotations

from collections.abc import Sequence

from reward_loop.rinker.engine.checking import (
    Limits,
    check_keys,
    check_some,
    checked_tokens,
    floats,
    integers,
    model_tokens,
    refusal,
)
from reward_loop.rinker.engine.rows import PairRow
from reward_loop.rinker.losses.bradley_terry import PAIR_INPUTS
from reward_loop.rinker.types import Datum


def pair_rows(data: Sequence[Datum], limits: Limits, *, single: bool) -> list[PairRow]:
    """Check all data: model_input is the preferred answer, `rejected_tokens` the other one.

    With `single` a datum without `rejected_tokens` is allowed, which is scored only. Raises RequestFailedError ("user").
    """
    check_some(data)
    rows = [_row(index, datum, limits, single) for index, datum in enumerate(data)]
    for index, row in enumerate(rows):
        if (row.rejected is None) != (rows[0].rejected is None):
            raise refusal(f"only one of data[0] and data[{index}] has rejected_tokens; score pairs and single answers apart")
    return rows


def _row(index: int, datum: Datum, limits: Limits, single: bool) -> PairRow:
    inputs = datum.loss_fn_inputs
    chosen = model_tokens(index, datum, limits)
    check_keys(index, inputs, () if single else ("rejected_tokens",), PAIR_INPUTS)
    if "rejected_tokens" not in inputs:
        return PairRow(chosen)
    rejected = integers(index, "rejected_tokens", inputs["rejected_tokens"], limits)
    where = f"data[{index}].loss_fn_inputs['rejected_tokens']"
    if rejected.ndim != 1:
        raise refusal(f"{where} has shape {list(rejected.shape)}; give the tokens of one sequence")
    tokens = checked_tokens(where, rejected.tolist(), limits)
    if tokens == chosen:
        raise refusal(f"{where} are the tokens of model_input; a pair needs two answers")
    return PairRow(chosen, tokens, _margin(index, datum))


def _margin(index: int, datum: Datum) -> float:
    if "margin" not in datum.loss_fn_inputs:
        return 0.0
    margin = floats(index, "margin", datum.loss_fn_inputs["margin"])
    if margin.size != 1:
        raise refusal(f"data[{index}].loss_fn_inputs['margin'] has shape {list(margin.shape)}; give one number")
    return float(margin.reshape(()))

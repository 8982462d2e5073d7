"""One call's data from their checks to their results: cut into micro-batches, shared among ranks, and joined again."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import torch
from torch import nn

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.engine.checking import Limits
from reward_loop.rinker.engine.micro_batches import micro_batches
from reward_loop.rinker.engine.pair_rows import pair_rows
from reward_loop.rinker.engine.passes import PassResult, pair_pass, token_pass
from reward_loop.rinker.engine.ranks import Ranks
from reward_loop.rinker.engine.rows import PairRow, Row, TokenRow
from reward_loop.rinker.engine.token_rows import token_rows
from reward_loop.rinker.learner import LossConfig
from reward_loop.rinker.losses.bradley_terry import PAIR_SETTINGS, check_label
from reward_loop.rinker.losses.metrics import joined_metrics
from reward_loop.rinker.losses.registry import check_pair_loss, token_loss
from reward_loop.rinker.losses.settings import loss_settings
from reward_loop.rinker.types import Datum, ForwardBackwardOutput, TensorData
from reward_loop.rinker.types.model_spec import ModelKind

OUTPUT_TYPE = "ArrayRecord"
"""The name that Tinker gives to outputs that are arrays by key."""

_SHOWN = 8

Backward: TypeAlias = Callable[[torch.Tensor], None]
_Part: TypeAlias = tuple[Mapping[str, float], int]


@dataclass(frozen=True, slots=True)
class Work:
    """Checked data, and how some of them are put through a model."""

    rows: Sequence[Row]
    run: Callable[[nn.Module, Sequence[Row], torch.device], PassResult]


def checked_work(
    kind: ModelKind, limits: Limits, data: Sequence[Datum], loss_fn: str, config: LossConfig | None, *, forward_only: bool
) -> Work:
    """Check everything that a call was given; raises RequestFailedError ("user") for the first thing that is wrong."""
    if kind == "seq_cls":
        check_pair_loss(loss_fn)
        pair_settings = loss_settings(loss_fn, PAIR_SETTINGS, config)
        check_label(pair_settings["label"], limits.labels)
        pairs = pair_rows(data, limits, single=forward_only)
        return Work(pairs, lambda model, rows, device: pair_pass(model, cast("Sequence[PairRow]", rows), pair_settings, device))
    loss = token_loss(loss_fn)
    settings = loss_settings(loss_fn, loss.settings, config)
    tokens = token_rows(data, loss, limits)
    return Work(tokens, lambda model, rows, device: token_pass(model, cast("Sequence[TokenRow]", rows), loss, settings, device))


def done(
    work: Work, forward: nn.Module, device: torch.device, ranks: Ranks, tokens: int, backward: Backward | None
) -> ForwardBackwardOutput:
    """Put all data through the model, at most `tokens` tokens at a time, and call `backward` with the loss of each micro-batch.

    Raises RequestFailedError ("user") if a loss is not finite, on every rank and at the end, so that all make the same passes.
    """
    share = list(ranks.share([row.width * row.lines for row in work.rows]))
    batches = [[share[at] for at in some] for some in micro_batches([work.rows[at] for at in share], tokens)]
    outputs: dict[int, Mapping[str, TensorData]] = {}
    parts: list[_Part] = []
    bad: list[int] = []
    for number in range(int(ranks.most(len(batches)))):
        own = number < len(batches)
        some = batches[number] if own else [0]  # another rank has more to do: it waits for this one's pass
        result = work.run(forward, [work.rows[at] for at in some], device)
        if backward is not None:
            backward(result.loss if own else result.loss * 0)
        if own:
            outputs |= zip(some, result.outputs, strict=True)
            parts.append((result.metrics, len(some)))
            if not math.isfinite(result.metrics["loss:sum"]):
                bad += [some[at] for at in result.broken] or some  # where each is finite and their sum is not: all
    return _joined(ranks.gather((outputs, parts, bad)))


def _joined(
    shares: Sequence[tuple[Mapping[int, Mapping[str, TensorData]], Sequence[_Part], Sequence[int]]],
) -> ForwardBackwardOutput:
    outputs: dict[int, Mapping[str, TensorData]] = {}
    parts: list[_Part] = []
    bad: list[int] = []
    for own_outputs, own_parts, own_bad in shares:
        outputs |= own_outputs
        parts += own_parts
        bad += own_bad
    if bad:
        shown = ", ".join(f"data[{at}]" for at in sorted(bad)[:_SHOWN]) + (", …" if len(bad) > _SHOWN else "")
        raise RequestFailedError(
            f"the loss is not finite; it is one of {shown}. Nothing was added to the gradients. Look at these data, or go back "
            "to an earlier checkpoint and lower the learning rate",
            category="user",
        )
    return ForwardBackwardOutput(OUTPUT_TYPE, [outputs[at] for at in range(len(outputs))], joined_metrics(parts))

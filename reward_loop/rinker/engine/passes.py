"""What a micro-batch comes to: its loss, what is returned of each datum, and its metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from reward_loop.rinker.engine.rows import PairRow, TokenRow
from reward_loop.rinker.losses.bradley_terry import bradley_terry
from reward_loop.rinker.losses.diagnostics import kl_estimates, row_means, taking_part
from reward_loop.rinker.losses.loss import LossSettings, LossTerms, TokenLoss
from reward_loop.rinker.types import TensorData
from reward_loop.training.batches import padded

_RATIO_MASK = "sequence_ratio_mask"
"""What it marks makes GSPO's ratio, also where a token itself is not trained."""


@dataclass(frozen=True, slots=True)
class PassResult:
    """Of the rows of one micro-batch, in their order."""

    loss: torch.Tensor
    """A scalar, with gradients unless they are switched off."""
    outputs: Sequence[Mapping[str, TensorData]]
    metrics: Mapping[str, float]
    broken: Sequence[int] = ()
    """The rows whose loss is not finite."""


def token_pass(
    forward: nn.Module, rows: Sequence[TokenRow], loss: TokenLoss, settings: LossSettings, device: torch.device
) -> PassResult:
    """Sum a loss of a language model over these rows, which all have the same inputs."""
    ids, mask = (part.to(device) for part in padded([row.tokens for row in rows], 0))
    call: Any = forward
    logprobs, entropy = call(ids, mask, _stacked([row.targets for row in rows]).to(device))
    inputs = {key: _stacked([row.inputs[key] for row in rows]).to(device) for key in rows[0].inputs}
    counted = taking_part(inputs)
    terms = _terms(logprobs if loss.many_targets else logprobs[..., 0], inputs, loss, settings, counted)
    means = {name: row_means(value, counted) for name, value in terms.shown.items()}
    if "logprobs" in inputs:
        means |= {name: row_means(value, counted) for name, value in kl_estimates(logprobs[..., 0], inputs["logprobs"]).items()}
    if entropy is not None:
        means["entropy"] = row_means(entropy, counted)
    total = terms.loss.sum()
    sums = {"loss": total, "num_tokens": counted.sum()}
    if "weights" in inputs:
        sums["weights"] = inputs["weights"].double().sum()
    return PassResult(total, _logprobs_of(rows, logprobs), _metrics(sums, means), _broken(terms.loss.sum(-1)))


def pair_pass(forward: nn.Module, rows: Sequence[PairRow], settings: LossSettings, device: torch.device) -> PassResult:
    """Sum the loss of a reward model over these pairs; where none has a rejected answer they are scored only."""
    rejected_rows = [row.rejected for row in rows if row.rejected is not None]
    ids, mask = (part.to(device) for part in padded([*(row.chosen for row in rows), *rejected_rows], 0))
    call: Any = forward
    scores: torch.Tensor = call(ids, mask)
    values = [TensorData.from_torch(score) for score in scores.detach().cpu()]
    outputs: list[dict[str, TensorData]] = [{"scores": value} for value in values[: len(rows)]]
    for output, value in zip(outputs, values[len(rows) :], strict=False):
        output["rejected_scores"] = value
    if not rejected_rows:
        none = scores.sum() * 0  # NaN where a score is not finite, which is refused as a loss would be
        return PassResult(none, outputs, _metrics({"loss": none}, {}), _broken(scores.sum(-1)))
    margins = torch.tensor([row.margin for row in rows], dtype=torch.float32, device=device)
    label = int(settings["label"])
    chosen, rejected = scores[: len(rows), label], scores[len(rows) :, label]
    loss, means = bradley_terry(chosen, rejected, margins, settings["center"])
    return PassResult(loss, outputs, _metrics({"loss": loss}, means), _broken(chosen - rejected))


def _terms(
    logprobs: torch.Tensor, inputs: Mapping[str, torch.Tensor], loss: TokenLoss, settings: LossSettings, counted: torch.Tensor
) -> LossTerms:
    """Make the loss of the positions that count, and exactly 0 with no gradient of the others."""
    if loss.many_targets:  # a weight of 0 takes out more than a position: one of its targets
        return loss.terms(logprobs, inputs, settings)
    # Taken out before the loss sees them too: the gradient of what is infinite there would be NaN in spite of its factor 0.
    seen = counted if _RATIO_MASK not in inputs else counted | (inputs[_RATIO_MASK] != 0)
    safe = {**inputs, "logprobs": torch.where(seen, inputs["logprobs"], 0.0)}
    terms = loss.terms(torch.where(seen, logprobs, 0.0), safe, settings)
    return LossTerms(torch.where(counted, terms.loss, 0.0), terms.shown)


def _stacked(values: Sequence[torch.Tensor]) -> torch.Tensor:
    """Pad with 0 behind each row and, where rows have different numbers of targets, behind each position's targets."""
    if values[0].ndim == 1:
        return pad_sequence(list(values), batch_first=True)
    widest = max(value.shape[1] for value in values)
    return pad_sequence([nn.functional.pad(value, (0, widest - value.shape[1])) for value in values], batch_first=True)


def _logprobs_of(rows: Sequence[TokenRow], logprobs: torch.Tensor) -> list[Mapping[str, TensorData]]:
    values = logprobs.detach().float().cpu().numpy()
    outputs: list[Mapping[str, TensorData]] = []
    for number, row in enumerate(rows):
        own = values[number, : row.width, : row.targets.shape[1]]
        outputs.append({"logprobs": TensorData.from_numpy((own if row.many_targets else own[:, 0]).copy())})
    return outputs


def _metrics(sums: Mapping[str, torch.Tensor], means: Mapping[str, torch.Tensor]) -> dict[str, float]:
    found = {f"{name}:sum": value for name, value in sums.items()}
    found |= {f"{name}:mean": values.double().mean() for name, values in means.items()}
    # Fetched together: each number that is waited for stops a GPU.
    numbers: list[float] = torch.stack([value.detach().double() for value in found.values()]).tolist()
    return dict(zip(found, numbers, strict=True))


def _broken(losses: torch.Tensor) -> list[int]:
    bad: list[int] = (~losses.detach().isfinite()).nonzero()[:, 0].tolist()
    return bad

"""Credit for a batch that the reward loop scored.

Invariants: a sample whose `reward_mask` is 0 has no reward, whatever stands in `rm_scores`: it changes no statistic and gets 0;
groups are told by a column, never by equal prompts.
"""

from __future__ import annotations

from collections.abc import Hashable

import torch

from reward_loop.credit.normalization import CENTERED, Normalization, group_advantages
from reward_loop.credit.rollout import Rollout, Step, check_sizes
from reward_loop.data import DataProto, as_data_proto, response_lengths
from reward_loop.errors import DataError, InvalidReward
from reward_loop.outcome import MASK_KEY, finite

SCORES = "rm_scores"


def batch_advantages(
    data: object, normalization: Normalization = CENTERED, *, group_column: str = "uid", group_size: int | None = None
) -> torch.Tensor:
    """Return the advantage of every sample, float32 [B], from `rm_scores` [B, R], `reward_mask` [B] and the groups' column.

    `data` is a DataProto, ours or verl's. Per-token rewards count by their sum. DataError where a column is missing or a group
    has not `group_size` samples; InvalidReward for a reward that is no finite number.
    """
    batch = as_data_proto(data)
    needs_groups = normalization.center == "group" or group_size is not None
    groups: list[Hashable] = _groups(batch, group_column) if needs_groups else [None] * len(batch)
    check_sizes(groups, group_size)
    return torch.tensor(group_advantages(_rewards(batch), groups, normalization), dtype=torch.float32)


def token_advantages(data: object, advantages: torch.Tensor) -> torch.Tensor:
    """Return the advantage of every response token, [B, R]: the sample's own at its tokens, 0 at padding."""
    batch = as_data_proto(data)
    responses = batch.tensor("responses")
    if responses is None or advantages.shape != (len(batch),):
        raise DataError(f"advantages of shape {list(advantages.shape)} need one for each of {len(batch)} samples with responses")
    lengths = torch.from_numpy(response_lengths(batch))
    return torch.where(torch.arange(responses.shape[1]) < lengths[:, None], advantages[:, None], 0.0)


def batch_rollouts(
    data: object, *, score_key: str = "rm_score", group_column: str = "uid", reward_column: str | None = None
) -> list[Rollout]:
    """Return each sample as a rollout of one step, named by its row, so that any credit assigner can read what the loop wrote.

    `meta` holds the reward (None where it is masked) as `score_key`, the group's id, and the version of the reward model where
    there is the column `rm_version`; the step's own reward is that of `reward_column`, e.g. a rule's "acc". The text is left out.
    """
    batch = as_data_proto(data)
    groups, versions = batch.column(group_column), batch.column("rm_version")
    own = [0.0] * len(batch) if reward_column is None else _column(batch, reward_column)
    rollouts: list[Rollout] = []
    for row, reward in enumerate(_rewards(batch)):
        meta: dict[str, object] = {score_key: reward}
        if groups is not None:
            meta["group_id"] = groups[row]
        if versions is not None and versions[row] is not None:
            meta[f"{score_key}_version"] = versions[row]
        # A masked sample has None in the columns of others' extra info too; nobody reads its reward.
        base = 0.0 if reward is None else _finite(own[row], str(reward_column), row)
        rollouts.append(Rollout(str(row), [Step(0, "", "", base)], meta))
    return rollouts


def _rewards(batch: DataProto) -> list[float | None]:
    scores, mask = batch.tensor(SCORES), batch.tensor(MASK_KEY)
    if scores is None or mask is None:
        raise DataError(
            f"the batch has tensors {sorted(batch.tensor_names())} and needs {SCORES!r} and {MASK_KEY!r}, which tells masked "
            "samples from rewards of 0: batch.union(manager.compute_rm_score(batch))"
        )
    sums = scores.detach().to("cpu", torch.float64).reshape(len(batch), -1).sum(dim=1).tolist()
    counts = mask.detach().cpu().tolist()
    return [_finite(value, SCORES, row) if counts[row] else None for row, value in enumerate(sums)]


def _groups(batch: DataProto, name: str) -> list[Hashable]:
    groups: list[Hashable] = []
    for row, group in enumerate(_column(batch, name)):
        if group is None or not isinstance(group, Hashable):
            raise DataError(
                f"column {name!r} holds {group!r:.100} in row {row}; name the group of every sample by a text or number"
            )
        groups.append(group)
    return groups


def _column(batch: DataProto, name: str) -> list[object]:
    column = batch.column(name)
    if column is None:
        raise DataError(
            f"the batch has no column {name!r} (it has {sorted(batch.column_names())}); "
            "verl's trainer writes 'uid', one value for all samples of a prompt"
        )
    return list(column)


def _finite(value: object, name: str, row: int) -> float:
    try:
        return finite(value)
    except InvalidReward as error:
        raise InvalidReward(f"{name}: {error.message}", sample=str(row)) from None

"""From the outcomes of a batch to what the trainer gets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from reward_loop.data import DataProto, collate_columns, response_lengths
from reward_loop.data.columns import object_array
from reward_loop.outcome import FAILED, MESSAGE_KEY, STATUS_KEY, ErrorPolicy, Outcome
from reward_loop.outcome_table import OutcomeTable


def assemble(data: DataProto, outcomes: Sequence[Outcome], policy: ErrorPolicy) -> DataProto:
    """Return `rm_scores` (float32 [B, R]), `reward_mask` (float32 [B]), the extra-info columns and `reward_extra_keys`.

    A reward stands at the last valid response token, per-token rewards at every one; all else is 0. A batch of texts has no
    tokens: its `rm_scores` is [B, 1]. Raises BatchFailed under the policy "raise" if a sample failed.
    """
    table = OutcomeTable.of(outcomes)
    if not FAILED.isdisjoint(table.statuses):
        policy.check(table, sample_names(data))
    columns = collate_columns(table.extras)
    columns[STATUS_KEY] = object_array(table.statuses, len(table))
    columns[MESSAGE_KEY] = object_array(table.messages, len(table))
    scores, mask = _place(data, table, policy)
    return DataProto.from_dict(
        tensors={"rm_scores": scores, "reward_mask": mask},
        non_tensors=columns,
        meta_info={"reward_extra_keys": list(columns)},
    )


def sample_names(data: DataProto) -> list[str]:
    """Return what errors call each row: its number and, where there is one, its uid."""
    uids = data.column("uid")
    return [f"{row}" if uids is None else f"{row} (uid {uids[row]})" for row in range(len(data))]


def _place(data: DataProto, table: OutcomeTable, policy: ErrorPolicy) -> tuple[torch.Tensor, torch.Tensor]:
    responses = data.tensor("responses")
    width = 1 if responses is None else responses.shape[1]
    lengths = np.ones(len(data), np.int64) if responses is None else response_lengths(data)
    rewards = np.array([np.nan if reward is None else reward for reward in table.rewards], np.float32)
    mask = np.ones(len(table), np.float32)
    for row in np.isnan(rewards).nonzero()[0].tolist():
        rewards[row], mask[row] = policy.substitute(table.statuses[row])
    scores = np.zeros((len(data), width), np.float32)
    (full,) = lengths.nonzero()
    scores[full, lengths[full] - 1] = rewards[full]
    for row, tokens in table.tokens.items():
        # A list of another length is about tokens that the batch does not have, for it came as text: its sum stays.
        if len(tokens) == lengths[row] and responses is not None:
            scores[row, : lengths[row]] = tokens
    return torch.from_numpy(scores), torch.from_numpy(mask)

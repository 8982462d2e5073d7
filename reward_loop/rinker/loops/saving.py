"""Checkpoints of a run."""

from __future__ import annotations

from reward_loop.rinker.clients.training_client import TrainingClient
from reward_loop.rinker.loops.observer import CheckpointRecord
from reward_loop.rinker.loops.run_log import RunLog

Groups = tuple[tuple[int, int], ...]


async def save_checkpoint(
    client: TrainingClient, log: RunLog, done: int, *, sampler: bool, untrained: Groups = (), trained_ahead: Groups = ()
) -> CheckpointRecord:
    """Save what is there after `done` steps, to train on from and (`sampler`) to sample from, and list it."""
    name = f"{done:06d}"
    state = client.save_state(name, overwrite=True)
    written = client.save_weights_for_sampler(name) if sampler else None
    path = (await state).path
    record = CheckpointRecord(name, done, path, (await written).path if written else None, untrained, trained_ahead)
    log.saved(record)
    return record

"""TensorBoard event files, by torch's writer."""

from __future__ import annotations

import json
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from reward_loop.rubrics.logger.record import Record


class TensorboardBackend:
    """Scalars under `log_dir`, and the changes of the configuration as the text `config/changes`."""

    def __init__(self, log_dir: str | Path = "runs/rewards") -> None:
        self._writer = SummaryWriter(str(log_dir))

    def write(self, record: Record) -> None:
        """Add its scalars and texts."""
        for name, value in record.numbers().items():
            self._writer.add_scalar(name, value, record.step, walltime=record.time)
        for update in record.updates:
            text = json.dumps({"version": update.version, "changes": update.changes}, ensure_ascii=False, default=str)
            self._writer.add_text("config/changes", text, record.step, walltime=record.time)

    def flush(self) -> None:
        """Write what the writer holds back."""
        self._writer.flush()

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()

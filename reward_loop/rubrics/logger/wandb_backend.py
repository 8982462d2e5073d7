"""Weights & Biases, online or offline."""

from __future__ import annotations

import json
from typing import Any, Literal

import wandb

from reward_loop.rubrics.logger.record import Record

_STEP = "reward_step"


class WandbBackend:
    """A run of its own, or `run`, one of yours, which `close` leaves open.

    The x axis is the metric `reward_step`, not wandb's own step: wandb drops rows whose step goes back, and a trainer that
    logs to the same run is further on by the time a record comes from the background. For the same reason don't give `step=` to
    `log` in a run that you share.
    """

    def __init__(
        self,
        project: str = "reward_loop",
        name: str | None = None,
        group: str | None = None,
        mode: Literal["online", "offline"] | None = None,
        dir: str | None = None,  # noqa: A002 - wandb's name for it
        config: dict[str, Any] | None = None,
        run: wandb.Run | None = None,
    ) -> None:
        self._own = run is None
        self._run = run or wandb.init(
            project=project,
            name=name,
            group=group,
            mode=mode,
            dir=dir,
            config=config,
            reinit="create_new",  # a run that the trainer has open stays open
            settings=wandb.Settings(console="off", x_disable_stats=True),
        )
        self._run.define_metric(_STEP, hidden=True)
        for names in ("reward/*", "config/*", "judge/*", "env/*", "progress/*"):
            self._run.define_metric(names, step_metric=_STEP)

    def write(self, record: Record) -> None:
        """Log its numbers as one row; changes of the configuration are `config/changes` in it, as JSON."""
        row: dict[str, Any] = {_STEP: record.step, **record.numbers()}
        if record.updates:
            changes = {update.version: update.changes for update in record.updates}
            row["config/changes"] = json.dumps(changes, ensure_ascii=False, default=str)
        self._run.log(row)

    def flush(self) -> None:
        """Do nothing: wandb's own process has the rows."""

    def close(self) -> None:
        """End the run, if it is the backend's own."""
        if self._own:
            self._run.finish()

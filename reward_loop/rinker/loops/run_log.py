"""The directory of a run: its configuration, the metrics of its steps, its checkpoints.

Invariants: steps only ascend, also over a resumption: what was written of steps whose effect is lost is cut off; a checkpoint is
listed once its weights are saved.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from reward_loop.errors import ConfigError, TrainingError
from reward_loop.rinker.loops.config import LoggerConfig, LoopConfig
from reward_loop.rinker.loops.journal import Journal
from reward_loop.rinker.loops.observer import CheckpointRecord, Observer
from reward_loop.rubrics.logger.backend import Backend, open_backend
from reward_loop.rubrics.logger.record import Record

logger = logging.getLogger(__name__)

METRICS, CHECKPOINTS, CONFIG, GROUPS = "metrics.jsonl", "checkpoints.jsonl", "config.json", "groups.jsonl"
_MAY_CHANGE = frozenset(
    {
        "log_path",
        "max_steps",
        "save_every",
        "eval_every",
        "loggers",
        "epochs",
        "service",
        "failures",
        "max_rollouts_in_flight",
        "evaluation",
        "post_kl",
    }
)
"""Settings that another process may go on with differently."""


class RunLog:
    """Opens the directory `config.log_path`; `checkpoint` is what a run that was there goes on from.

    Raises ConfigError where a run of another configuration is there.
    """

    def __init__(self, kind: str, config: LoopConfig, observer: Observer | None = None) -> None:
        self.observer = observer or Observer()
        self._kind = kind
        try:
            config.log_path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"log_path={config.log_path}: {error.strerror}; give a directory that can be written to") from error
        self._metrics, self._groups = Journal(config.log_path / METRICS), Journal(config.log_path / GROUPS)
        self._checkpoints = Journal(config.log_path / CHECKPOINTS)
        self._check_same(kind, config)
        records = [_record(line) for line in self._checkpoints.read()]
        self.checkpoint = records[-1] if records else None
        self._cut()
        self._backends = [_opened(one) for one in config.loggers]

    @property
    def first_step(self) -> int:
        """The step to go on with, from 0."""
        return 0 if self.checkpoint is None else self.checkpoint.batch

    def start(self, steps: int) -> None:
        """Say that the run begins."""
        if self.checkpoint is not None:
            logger.info("step=%d/%d resumed from %s", self.first_step, steps, self.checkpoint.state_path)
        self.observer.on_start(self._kind, self.first_step, steps)

    def step(self, step: int, metrics: Mapping[str, float], groups: Sequence[Any] | None = None) -> None:
        """Write the metrics of a step. Raises TrainingError for one that is no finite number: the model is broken."""
        for name, value in metrics.items():
            if not math.isfinite(value):
                raise TrainingError(
                    f"{name} is {value} in step {step}; lower adam.learning_rate, or look at the data of this step"
                )
        if groups is not None:
            self._groups.append({"step": step, "groups": groups})
        now = time.time()
        self._metrics.append({"step": step, "time": now, **metrics})
        for backend in self._backends:
            backend.write(Record(step, now, metrics))
        self.observer.on_step(step, metrics)

    def saved(self, checkpoint: CheckpointRecord) -> None:
        """List a checkpoint."""
        self.checkpoint = checkpoint
        self._checkpoints.append({**asdict(checkpoint), "time": time.time()})
        self.observer.on_checkpoint(checkpoint)

    def close(self) -> None:
        """Close what metrics are written to."""
        for backend in self._backends:
            backend.close()

    def _cut(self) -> None:
        """Forget steps that were made after the checkpoint: they are made again."""
        first = self.first_step
        self._checkpoints.keep(lambda _: True)
        for journal in (self._metrics, self._groups):
            journal.keep(lambda line: int(line["step"]) < first)

    def _check_same(self, kind: str, config: LoopConfig) -> None:
        path = config.log_path / CONFIG
        settings = {"kind": kind, **json.loads(config.model_dump_json())}
        if path.exists():
            before = _settings(path)
            changed = sorted(key for key in settings.keys() - _MAY_CHANGE if before.get(key) != settings[key])
            if changed:
                raise ConfigError(
                    f"{config.log_path} holds a run whose {', '.join(changed)} was another; give another log_path, or the same"
                )
        draft = path.with_name(f"{CONFIG}.draft")
        draft.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
        draft.replace(path)


def read_checkpoints(log_path: str | Path) -> list[CheckpointRecord]:
    """Return the checkpoints of the run in a directory, oldest first."""
    return [_record(line) for line in Journal(Path(log_path) / CHECKPOINTS).read()]


def _settings(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{path} holds no settings of a run ({error}); remove it, or give another log_path") from error
    if not isinstance(settings, dict):
        raise ConfigError(f"{path} holds no settings of a run ({settings!r:.80}); remove it, or give another log_path")
    return cast("dict[str, Any]", settings)


def _record(line: Mapping[str, Any]) -> CheckpointRecord:
    untrained, ahead = (_groups(line.get(key, ())) for key in ("untrained", "trained_ahead"))
    return CheckpointRecord(line["name"], int(line["batch"]), line["state_path"], line.get("sampler_path"), untrained, ahead)


def _groups(pairs: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    return tuple((int(batch), int(position)) for batch, position in pairs)


def _opened(config: LoggerConfig) -> Backend:
    return open_backend(config.backend, config.options)

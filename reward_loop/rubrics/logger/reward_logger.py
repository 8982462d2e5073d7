"""The logger that training code calls: samples in, one record per step out, written in the background.

Invariants: a call never waits for the backend; what is logged is means over a step's samples, written when the next step begins,
so that steps only ascend; a sample of an earlier step is counted in the current one, which is said once. When the backend is so
far behind that the queue is full, the step is not written yet but goes on as the next one: nothing is lost, memory does not grow
and training does not wait.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, Self

from reward_loop.errors import RewardLoopError
from reward_loop.rubrics.judges.usage import JudgeUsage
from reward_loop.rubrics.logger.backend import Backend, BackendName, open_backend
from reward_loop.rubrics.logger.record import ConfigUpdate
from reward_loop.rubrics.logger.step_buffer import (
    StepBuffer,
    checked_weights,
    environment_metric,
    sample_metrics,
    whole_number,
)
from reward_loop.rubrics.logger.writer import BackgroundWriter

_logger = logging.getLogger(__name__)

_MOST_ENVIRONMENTS = 64


class RewardLogger:
    """Log rewards to "tensorboard", "wandb", "mlflow", "jsonl", "memory", or a `Backend` of yours; `options` are the backend's.

    Metrics: reward/total, reward/{rubric}, reward/weights/{rubric} (when it changed), config/updates (the version),
    judge/{calls,prompt_tokens,completion_tokens,cost}, env/{env_id}/reward, progress/{samples,episode}.
    """

    def __init__(
        self,
        backend: BackendName | Backend = "tensorboard",
        *,
        queue_records: int = 1024,
        timeout_s: float = 60.0,
        **options: Any,
    ) -> None:
        self.backend: Backend = open_backend(backend, options) if isinstance(backend, str) else backend
        self.late_calls = 0
        """Calls with an earlier step than one before them; they were counted in the current step."""
        self._writer = BackgroundWriter(self.backend, queue_records)
        self._timeout_s = timeout_s
        self._step = 0
        self._buffer: StepBuffer | None = None
        self._environments: set[str] = set()
        self._said: set[str] = set()
        self._closed = False
        self._lock = threading.Lock()
        atexit.register(self.close)

    @property
    def lost_records(self) -> int:
        """Steps that the backend failed to write."""
        return self._writer.lost

    def log_step(
        self,
        *,
        step: int,
        reward: float | None,
        episode: int | None = None,
        components: Mapping[str, float | None] | None = None,
        env_id: str | int | None = None,
        weights: Mapping[str, float] | None = None,
    ) -> None:
        """Count one sample in its step's means; a reward or component that is None is in none.

        Raises ValueError, and counts nothing, for a bad step, name or number.
        """
        metrics = sample_metrics(reward, components or {})
        weighed = checked_weights(weights or {})
        episode = None if episode is None else whole_number("episode", episode)
        with self._lock:
            buffer = self._at(whole_number("step", step))
            if env_id is not None and "reward/total" in metrics:
                metrics |= self._of_environment(env_id, metrics["reward/total"])
            buffer.add(metrics, episode, weighed)

    def log_config_update(self, version: int, changes: Mapping[str, Any], step: int) -> None:
        """Note that the configuration became `version` in this step."""
        update = ConfigUpdate(whole_number("version", version), dict(changes))
        with self._lock:
            self._at(whole_number("step", step)).add_update(update)

    def log_judge_usage(self, usage: JudgeUsage, step: int) -> None:
        """Add the calls, tokens and cost of judges to the step's sums."""
        with self._lock:
            self._at(whole_number("step", step)).add_usage(usage)

    def flush(self, timeout_s: float | None = None) -> bool:
        """Write everything up to here, the current step too; False where the backend takes longer than `timeout_s`.

        Samples of this step that come later make another record of it.
        """
        with self._lock:
            if self._closed:
                return True
        return self._write_all(time.monotonic() + (self._timeout_s if timeout_s is None else timeout_s))

    def close(self) -> None:
        """Write everything and close the backend; what it does not take within `timeout_s` is given up, and said in the log."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        atexit.unregister(self.close)
        deadline = time.monotonic() + self._timeout_s
        if not (self._write_all(deadline) and self._writer.close(deadline - time.monotonic())):
            _logger.error("the backend did not take everything within %g s: the last steps may be missing", self._timeout_s)

    def _write_all(self, deadline: float) -> bool:
        """Empty the queue first, so that the current step finds room in it."""
        if not self._writer.flush(deadline - time.monotonic()):
            return False
        with self._lock:
            turned = self._turn()
        return turned and self._writer.flush(deadline - time.monotonic())

    def _at(self, step: int) -> StepBuffer:
        """Return the buffer that a call with this step belongs to. The caller holds the lock."""
        if self._closed:
            raise RewardLoopError("this reward logger was closed; build another one")
        if step < self._step:
            self.late_calls += 1
            self._say_once("step=%d comes after step=%d and is counted in it, as all earlier ones from here on", step, self._step)
        elif step > self._step:
            if not self._turn() and self._buffer is not None:
                self._say_once("step=%d waits for the backend, which is far behind, and is averaged with the next", self._step)
                self._buffer.step = step
            self._step = step
        if self._buffer is None:
            self._buffer = StepBuffer(self._step)
        return self._buffer

    def _turn(self) -> bool:
        """Hand the current step to the writer; False where it has no room. The caller holds the lock."""
        if self._buffer is not None and not self._buffer.empty and not self._writer.offer(self._buffer.record(time.time())):
            return False
        self._buffer = None
        return True

    def _of_environment(self, env_id: str | int, reward: float) -> dict[str, float]:
        """Return the environment's metric, while there are few: ids of episodes would make a metric each."""
        metric = environment_metric(env_id)
        if metric not in self._environments and len(self._environments) >= _MOST_ENVIRONMENTS:
            self._say_once("env_id=%r and more have no metric of their own: %d others have", env_id, _MOST_ENVIRONMENTS)
            return {}
        self._environments.add(metric)
        return {metric: reward}

    def _say_once(self, message: str, *values: object) -> None:
        if message not in self._said:
            self._said.add(message)
            _logger.warning(message, *values)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

"""The thread that draws: it takes what waits, and gives each batch its turn.

Invariants: a batch reads one snapshot; what has begun goes on with the weights it began with; every job ends with a result or an
error, also when the worker is closed.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.sampling.batching import next_batch
from reward_loop.rinker.sampling.generation import Generation
from reward_loop.rinker.sampling.job import Job, Row
from reward_loop.rinker.sampling.loaded_models import LoadedModels
from reward_loop.rinker.sampling.settings import HFSamplerSettings

logger = logging.getLogger(__name__)


class SamplingWorker:
    """Runs jobs in a thread of its own, which begins with the first of them."""

    def __init__(self, models: LoadedModels, settings: HFSamplerSettings) -> None:
        self._models = models
        self._settings = settings
        self._changed = threading.Condition()
        self._waiting: deque[Row] = deque()
        self._calls = 0
        self._active: list[Generation] = []
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, job: Job) -> None:
        """Have a job run. Raises RequestFailedError where too many wait, or the sampler is closed."""
        with self._changed:
            if self._closed:
                raise _closed()
            if self._calls >= self._settings.max_waiting:
                limit = f"{self._calls} calls wait for the sampler, which is its limit"
                raise RequestFailedError(f"{limit}; ask again later, or raise max_waiting", category="server")
            self._calls += 1
            job.future.add_done_callback(self._count_down)
            self._waiting.extend(job.rows)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="rinker-sampler", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Fail what waits and end the thread once the step that it does is done; a second call does nothing."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _count_down(self, _: object) -> None:
        with self._changed:
            self._calls -= 1

    def _run(self) -> None:
        while self._admit():
            for batch in list(self._active):
                self._advance(batch)
        for row in [*self._waiting, *(row for batch in self._active for row in batch.rows)]:
            row.job.fail(_closed())

    def _admit(self) -> bool:
        """Begin what there is room for; return False once the worker is closed."""
        with self._changed:
            if not (self._active or self._waiting):
                while not (self._waiting or self._closed):
                    self._changed.wait()
                self._gather()
            if self._closed:
                return False
            room = self._settings.max_batches - len(self._active)
            batches = [next_batch(self._waiting, self._settings) for _ in range(room) if self._waiting]
        for rows in batches:
            if rows:
                self._begin(rows)
        return True

    def _gather(self) -> None:
        """Wait until no call has come for a while: those that are made at once should run together."""
        deadline = time.monotonic() + self._settings.window_s
        while not self._closed:
            before, left = len(self._waiting), deadline - time.monotonic()
            if left <= 0 or before >= self._settings.max_batch_sequences:
                return
            self._changed.wait(min(left, self._settings.window_s / 4))
            if len(self._waiting) == before:
                return

    def _begin(self, rows: list[Row]) -> None:
        try:
            model = self._models.model(rows[0].job.snapshot)
            self._active.append(Generation(model, rows))
        except RequestFailedError as error:
            _fail(rows, error)
        except Exception as error:  # whatever a model raises is the batch's error, and not the end of the sampler
            logger.exception("snapshot=%s could not be sampled from", rows[0].job.snapshot.id)
            _fail(rows, RequestFailedError(f"the sampler failed: {error!r}", category="server"))

    def _advance(self, batch: Generation) -> None:
        try:
            if batch.live:
                batch.step()
        except Exception as error:  # as above: memory, a kernel, a model's own code
            logger.exception("snapshot=%s sequences=%d failed", batch.rows[0].job.snapshot.id, len(batch.rows))
            _fail(batch.rows, RequestFailedError(f"the sampler failed: {error!r}", category="server"))
        if not batch.live:
            self._active.remove(batch)


def _fail(rows: list[Row], error: RequestFailedError) -> None:
    for row in rows:
        row.job.fail(error)


def _closed() -> RequestFailedError:
    return RequestFailedError("the sampler is closed; build another one", category="server")

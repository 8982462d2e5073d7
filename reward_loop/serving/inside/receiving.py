"""Receives an update in threads of its own, while the engine goes on serving: one takes the buckets from the plane, another one
checks each of them while the next arrives.

Invariants: an update that was aborted is not heard of again; nothing is received after the time limit; an end is told once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

from reward_loop.errors import WeightSyncError
from reward_loop.serving.inside.staged_file import StagedFile
from reward_loop.sync.digest import digest_of
from reward_loop.sync.finite import first_not_finite
from reward_loop.sync.planes.plane import TensorReceiver

_AHEAD = 3
"""Buckets whose pages are made ready before they come."""


class NotFinite(WeightSyncError):
    """A weight that came is NaN or infinite."""


class Reception:
    """Receives one update into `staged` from `receiver`, which it closes.

    `done` gets the digest of each bucket, or why there are none, and the seconds that it took: from a thread, at most once, and
    not after `abort` has returned.
    """

    def __init__(
        self,
        staged: StagedFile,
        receiver: TensorReceiver,
        timeout_s: float,
        done: Callable[[list[str] | Exception, float], None],
    ) -> None:
        self._staged = staged
        self._receiver = receiver
        self._done = done
        self._lock = threading.Lock()
        self._stopped: str | None = None
        self._over = False
        self._thread = threading.Thread(target=self._run, name="weights received", daemon=True)
        self._limit = threading.Timer(timeout_s, self._stop, [f"it was not received within {timeout_s:g} s"])
        self._limit.daemon = True

    def start(self) -> None:
        """Begin to receive."""
        self._limit.start()
        self._thread.start()

    def abort(self) -> None:
        """Stop receiving, and tell nobody."""
        self._limit.cancel()
        with self._lock:
            over, self._over = self._over, True
        if not over:
            self._stop("it was aborted")

    def join(self) -> None:
        """Wait until nothing is received any more."""
        self._thread.join()

    def _stop(self, why: str) -> None:
        with self._lock:
            self._stopped = self._stopped or why
        self._receiver.abort()

    def _run(self) -> None:
        began = time.monotonic()
        try:
            found: list[str] | Exception = self._received()
        except Exception as error:  # noqa: BLE001 - nobody awaits this thread: whatever ended it is what there is to tell
            found = error if self._stopped is None else WeightSyncError(f"{self._stopped}: {error}")
        self._limit.cancel()
        with self._lock:
            if not self._over:
                self._over = True
                self._done(found, time.monotonic() - began)

    def _received(self) -> list[str]:
        buckets = self._staged.manifest.buckets
        checks = list[Future[str]]()
        with closing(self._receiver), ThreadPoolExecutor(1, thread_name_prefix="weights checked") as checker:
            for index in range(min(_AHEAD, buckets)):
                checker.submit(self._staged.make_ready, index)
            try:
                for index in range(buckets):
                    self._receiver.receive(index, self._staged.bucket(index))
                    checks.append(checker.submit(self._checked, index))
                    if index + _AHEAD < buckets:
                        checker.submit(self._staged.make_ready, index + _AHEAD)
                    _raise_first(checks)
                return [check.result() for check in checks]
            except BaseException:  # whatever it was: leaving the block would wait for checks that nobody wants
                checker.shutdown(wait=False, cancel_futures=True)
                raise

    def _checked(self, index: int) -> str:
        bucket = self._staged.bucket(index)
        bad = first_not_finite(bucket, self._staged.manifest.pieces[index])
        if bad is not None:
            raise NotFinite(f"{bad} holds NaN or infinity; nothing of the update was used")
        digest = digest_of(bucket)
        self._staged.release(index)
        return digest


def _raise_first(checks: Sequence[Future[str]]) -> None:
    """Raise what the first check that failed so far has raised."""
    for check in checks:
        if check.done():
            check.result()

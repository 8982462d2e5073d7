"""Receives an update in threads of its own, while the engine goes on serving: one takes the buckets from the plane, another one
checks and keeps each of them while the next arrives.

Invariants: an update that was aborted is not heard of again; nothing is received after the time limit; an end is told once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import torch

from reward_loop.errors import WeightSyncError
from reward_loop.serving.inside.staged_file import StagedFile
from reward_loop.sync.digest import digest_of
from reward_loop.sync.finite import first_not_finite
from reward_loop.sync.planes.plane import TensorReceiver

_BUFFERS = 2
"""Buckets that are in memory at a time: one arrives, one is checked and kept."""


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
        manifest = self._staged.manifest
        buffers = [
            torch.empty(manifest.bucket_size(index), dtype=torch.uint8) for index in range(min(_BUFFERS, manifest.buckets))
        ]
        kept = list[Future[str]]()
        with closing(self._receiver), ThreadPoolExecutor(1, thread_name_prefix="weights checked") as keeper:
            try:
                for index in range(manifest.buckets):
                    if index >= _BUFFERS:
                        kept[index - _BUFFERS].result()  # its buffer is free
                    bucket = buffers[index % _BUFFERS][: manifest.bucket_size(index)]
                    self._receiver.receive(index, bucket)
                    kept.append(keeper.submit(self._keep, index, bucket))
                return [each.result() for each in kept]
            except BaseException:  # whatever it was: leaving the block would wait for what nobody wants
                keeper.shutdown(wait=False, cancel_futures=True)
                raise

    def _keep(self, index: int, bucket: torch.Tensor) -> str:
        """Write a bucket to the file unless something in it is not finite; return its digest."""
        bad = first_not_finite(bucket, self._staged.manifest.pieces[index])
        if bad is not None:
            raise NotFinite(f"{bad} holds NaN or infinity; nothing of the update was used")
        self._staged.write(index, bucket)
        return digest_of(bucket)

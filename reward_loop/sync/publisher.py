"""Publishing the weights of a model in training to the servers that score with it."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import torch

from reward_loop.config_sync import SyncConfig
from reward_loop.errors import WeightSyncError
from reward_loop.sync.chosen_plane import communicator
from reward_loop.sync.control_plane import ControlPlane
from reward_loop.sync.identity import kind_of, next_version
from reward_loop.sync.manifest import Manifest, TensorSpec
from reward_loop.sync.planes.plane import TensorCommunicator
from reward_loop.sync.reload_plane import ReloadPlane
from reward_loop.sync.replicas import Replicas
from reward_loop.sync.report import PublishReport
from reward_loop.sync.run_apart import run_apart
from reward_loop.sync.selection import selected
from reward_loop.sync.training_mode import RewardModelTrainingMode
from reward_loop.sync.update import Update

logger = logging.getLogger(__name__)

_MIB = 1 << 20
_LOOK_S = 0.01


class RewardModelPublisher:
    """Has the servers behind `control` serve what a trainer gives it, all of them or none.

    `comm` carries the tensors and is opened anew for each update; None: `settings.plane` says what does. `head_name_patterns` say
    which weights are the head (whole segments of their names; None: the usual ones). `strict` refuses a body in a head_only
    update, instead of leaving it out. A policy is published with `generative`, and `key_filter` chooses among served names.
    `host` and `port` are where servers find this trainer (None, 0: chosen). `checkpoint` is the directory with the
    configuration and the tokenizer of a model that servers without the reward loop's plugin serve under another name.
    `bucket_bytes` (a multiple of 64) goes before `settings.bucket_mb`.

    One update at a time: who publishes while another thread does waits for it.
    """

    def __init__(
        self,
        control: ControlPlane,
        comm: TensorCommunicator | None = None,
        *,
        head_name_patterns: Sequence[str] | None = None,
        settings: SyncConfig | None = None,
        strict: bool = False,
        generative: bool = False,
        key_filter: Callable[[str], bool] | None = None,
        host: str | None = None,
        port: int = 0,
        checkpoint: str | None = None,
        bucket_bytes: int | None = None,
    ) -> None:
        self._control = control
        self._comm = comm
        self._settings = settings or SyncConfig()
        self._heads = head_name_patterns
        self._strict = strict
        self._generative = generative
        self._key_filter = key_filter
        self._host = host
        self._port = port
        self._checkpoint = checkpoint
        self.bucket_bytes = self._settings.bucket_mb * _MIB if bucket_bytes is None else bucket_bytes
        """Size of the buckets of the next update."""
        self._turn = threading.Lock()

    def publish(
        self,
        state_dict: Mapping[str, torch.Tensor],
        version: int | None = None,
        *,
        training_mode: RewardModelTrainingMode | str = RewardModelTrainingMode.FULL,
    ) -> PublishReport:
        """Return once every server serves these weights under `version` (None: the next one).

        Works with and without a running event loop. Raises WeightSyncError, naming the tensor or the server and the reason, where
        it does not come to that: then every server serves what it served before. Interrupted (Ctrl-C) it does the same.
        """
        return run_apart(lambda: self.publish_async(state_dict, version, training_mode=training_mode))

    async def publish_async(
        self,
        state_dict: Mapping[str, torch.Tensor],
        version: int | None = None,
        *,
        training_mode: RewardModelTrainingMode | str = RewardModelTrainingMode.FULL,
    ) -> PublishReport:
        """`publish` for a running event loop; cancelled, it takes everything back, or ends what it has begun to commit."""
        mode = RewardModelTrainingMode(training_mode)
        async with self._alone():
            tensors = selected(
                state_dict, mode, self._heads, self._strict, generative=self._generative, key_filter=self._key_filter
            )
            async with self._control.reached(self._settings.timeout_s) as replicas:
                report = await self._published(replicas, tensors, mode, version)
        logger.info("published %s", report)
        return report

    async def _published(
        self, replicas: Replicas, tensors: Mapping[str, torch.Tensor], mode: RewardModelTrainingMode, asked: int | None
    ) -> PublishReport:
        identities = await replicas.identities(self._settings.timeout_s)
        partial = mode is RewardModelTrainingMode.HEAD_ONLY
        if kind_of(identities) == "stock":
            return await self._reloaded(replicas, tensors, mode, asked)
        version = next_version({each.server: each.version for each in identities}, asked, partial=partial)
        update = Update(
            replicas=replicas,
            served={each.server: each.version for each in identities},
            comm=self._comm or communicator(identities, tensors, self._settings, self._host, self._port),
            tensors=tensors,
            manifest=Manifest.of(map(_spec, tensors, tensors.values()), self.bucket_bytes),
            mode=mode,
            version=version,
            timeout_s=self._settings.timeout_s,
            drain_timeout_s=self._settings.drain_timeout_s,
        )
        thread = ThreadPoolExecutor(1, "publish")
        try:
            return await update.run(thread)
        finally:
            thread.shutdown(wait=False)

    async def _reloaded(
        self, replicas: Replicas, tensors: Mapping[str, torch.Tensor], mode: RewardModelTrainingMode, asked: int | None
    ) -> PublishReport:
        """Publish to servers of vLLM that know nothing of the reward loop."""
        settings = self._settings
        if self._comm is not None or settings.plane not in ("auto", "directory"):
            plane = settings.plane if self._comm is None else self._comm.plane
            raise WeightSyncError(
                f"{', '.join(replicas.urls)} has no plugin of the reward loop, and so only takes plane=directory, not {plane}"
            )
        reload = ReloadPlane(replicas, settings.directory, self._checkpoint, settings.timeout_s, settings.drain_timeout_s)
        served = await reload.served()
        version = next_version(served, asked, partial=mode is RewardModelTrainingMode.HEAD_ONLY)
        return await reload.publish(tensors, mode, version, served)

    @asynccontextmanager
    async def _alone(self) -> AsyncGenerator[None]:
        # A thread may hold the lock for as long as an update takes, and waiting for it must not hold up this loop.
        while not self._turn.acquire(blocking=False):  # noqa: ASYNC110 - another thread's loop has nobody to tell
            await asyncio.sleep(_LOOK_S)
        try:
            yield
        finally:
            self._turn.release()


def _spec(name: str, tensor: torch.Tensor) -> TensorSpec:
    return TensorSpec(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))

"""The worker's side of weight sync: one of vLLM's weight-transfer engines, registered as the backend `reward_loop`.

An update is prepared (does it fit the model?), transferred (received into a file, and checked), perhaps verified, and committed
by `finish_weight_update`; or aborted at any time before. A revert takes the place of the first three. How an update stands is
noted in the update directory before a call returns or raises.

Invariants: the commit alone touches the model, and either succeeds on all ranks or leaves what served before; the commit alone
keeps the engine's loop from serving; a worker that starts loads what was committed.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import WeightTransferEngine, WeightTransferInitInfo, WeightTransferUpdateInfo

from reward_loop.errors import WeightSyncError
from reward_loop.serving.inside.ranks import Ranks
from reward_loop.serving.inside.received_update import ReceivedUpdate
from reward_loop.serving.inside.served_model import ServedModel
from reward_loop.serving.inside.update_directory import State, Status, UpdateDirectory
from reward_loop.sync.manifest import Manifest

logger = logging.getLogger(__name__)


@dataclass
class TicketInfo(WeightTransferInitInfo):  # type: ignore[misc, unused-ignore]  # untyped where vLLM is not installed
    """How the trainer of a session is to be reached."""

    session: str
    ticket: dict[str, Any]


@dataclass
class PhaseInfo(WeightTransferUpdateInfo):  # type: ignore[misc, unused-ignore]
    """A step of an update; which of the rest is given depends on it."""

    phase: str
    """prepare, transfer, verify, revert or abort."""
    session: str = ""
    manifest: dict[str, Any] = field(default_factory=dict[str, Any])
    mode: str = "full"
    version: int = 0
    dropped: bool = False
    """Whether the weights were dropped (sleep level 2), and none were loaded since."""
    timeout_s: float = 600.0
    digests: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class _Commit:
    """What `finish_weight_update` does."""

    session: str
    names: Collection[str]
    load: Callable[[], None]
    keep: Callable[[], None]
    """Called by the first rank, when all have loaded."""


class RewardTransferEngine(WeightTransferEngine[TicketInfo, PhaseInfo]):  # type: ignore[misc, unused-ignore]
    """One rank's weights, kept in step with a trainer's."""

    init_info_cls = TicketInfo
    update_info_cls = PhaseInfo
    supports_draft_weight_update = False

    def __init__(self, config: Any, vllm_config: Any, device: torch.device, model: torch.nn.Module) -> None:
        """Load what was committed to the update directory; raises WeightSyncError if that can't be used."""
        super().__init__(config, vllm_config, device, model)
        parallel = vllm_config.parallel_config
        rank = parallel.data_parallel_index * parallel.world_size + parallel.rank
        self._directory = UpdateDirectory.of(vllm_config.instance_id)
        self._ranks = Ranks(self._directory, rank, parallel.world_size_across_dp)
        self._served = ServedModel(vllm_config, model, self._directory)
        self._ticket: TicketInfo | None = None
        self._update: ReceivedUpdate | None = None
        self._commit: _Commit | None = None
        if self._ranks.leads:
            self._directory.tidy()
            if not self._directory.lasting:
                atexit.register(shutil.rmtree, self._directory.path, ignore_errors=True)
        self._served.start()

    def init_transfer_engine(self, init_info: TicketInfo) -> None:
        """Remember how to reach the trainer; waits for nobody."""
        self._ticket = init_info

    def start_weight_update(self) -> None:
        """Begin anew."""
        self._drop()
        self._ranks.forget()

    def receive_weights(self, update_info: PhaseInfo) -> None:
        """Take a step; raises WeightSyncError for what is refused, and for `abort`: vLLM's worker ends an update by an error."""
        session = update_info.session
        if update_info.phase == "abort":
            if self._update is None or session in ("", self._update.session):
                self._drop()
            raise WeightSyncError(f"session {session!r} was aborted; the old weights serve")
        try:
            self._step(update_info)
        except WeightSyncError as error:
            self._drop()
            self._note(session, "refused", str(error))
            raise
        except Exception as error:  # a fault of ours or the device's: noted for the trainer, and raised as it is
            self._drop()
            self._note(session, "failed", f"{type(error).__name__}: {error}")
            raise

    def finish_weight_update(self) -> None:
        """Have what was received, or was before, serve; raises WeightSyncError if that failed, and what served still does."""
        commit = self._commit or self._of_received()
        began = time.monotonic()
        try:
            self._committed(commit)
        except Exception as error:  # whatever it is, the trainer finds it in the note; raised as it is
            self._note(commit.session, "failed", str(error))
            raise
        finally:
            self._drop()
        self._note(commit.session, "committed", details={"seconds": time.monotonic() - began})
        if self._ranks.leads:
            threading.Thread(target=_removed, args=[self._directory.obsolete()], name="weights removed", daemon=True).start()

    def shutdown(self) -> None:
        """Let go of a trainer."""
        self._drop()

    def _step(self, info: PhaseInfo) -> None:
        match info.phase:
            case "prepare":
                self._prepare(info)
            case "transfer":
                self._transfer(info)
            case "verify":
                if self._ranks.leads:
                    self._of_session(info.session).verify(info.digests)
                    self._note(info.session, "verified")
            case "revert":
                self._commit = self._of_revert(info.session)
                self._note(info.session, "verified")
            case unknown:
                raise WeightSyncError(f"phase={unknown!r} is unknown; give prepare, transfer, verify, revert or abort")

    def _prepare(self, info: PhaseInfo) -> None:
        self._drop()
        manifest = Manifest.from_json(info.manifest)
        self._check_awake()
        known = self._served.known()
        known.check(manifest.tensors, info.mode, dropped=info.dropped or self._served.dropped)
        path = self._directory.staged if self._ranks.leads else None
        self._update = ReceivedUpdate(info.session, info.version, manifest, known.loaded(manifest.tensors), path)
        self._note(info.session, "prepared")

    def _transfer(self, info: PhaseInfo) -> None:
        update = self._of_session(info.session)
        if not self._ranks.leads:
            update.map(self._directory.staged)
            return
        if self._ticket is None or self._ticket.session != info.session:
            raise WeightSyncError(f"no ticket came for session {info.session!r}: POST /init_weight_transfer_engine first")
        self._note(info.session, "receiving")
        device = self.device if self.device.type == "cuda" else None
        update.receive(self._ticket.ticket, info.timeout_s, device, self._directory.note)

    def _of_session(self, session: str) -> ReceivedUpdate:
        if self._update is None or self._update.session != session:
            raise WeightSyncError(f"no update was prepared in session {session!r}")
        return self._update

    def _of_received(self) -> _Commit:
        update = self._update
        if update is None or (self._ranks.leads and update.digests is None):
            raise WeightSyncError("there is nothing to commit: an update is prepared, transferred, and then finished")
        return _Commit(
            update.session,
            update.names,
            lambda: self._served.load(update.weights(), update.names),
            lambda: self._directory.commit(update.version, update.names),
        )

    def _of_revert(self, session: str) -> _Commit:
        now, before = self._directory.record(), self._directory.previous()
        if before is None:
            raise WeightSyncError("there is no update to take back: none was committed, or the last one was taken back")
        names = [name for name, file in now.tensors.items() if before.tensors.get(name) != file]
        return _Commit(session, names, lambda: self._served.load_recorded(before, names), self._directory.revert)

    def _committed(self, commit: _Commit) -> None:
        self._check_awake()
        before = self._directory.record()
        try:
            commit.load()
            why = ""
        except Exception as error:  # whatever vLLM's loader met: the old weights come back
            logger.exception("session=%s could not be loaded", commit.session)
            why = f"{type(error).__name__}: {error}"
        if why := self._ranks.agree(commit.session, why, commit.keep):
            self._restore(lambda: self._served.load_recorded(before, commit.names))
            raise WeightSyncError(f"the commit failed, and what served before serves again: {why}")

    def _restore(self, load: Callable[[], None]) -> None:
        try:
            load()
        except Exception:  # whatever it is: the weights are now a mixture
            logger.critical("the weights that served before can't be loaded again: this server ends", exc_info=True)
            os._exit(1)  # an exception would be passed on to the client, and the mixture would score

    def _check_awake(self) -> None:
        if self._served.asleep:
            raise WeightSyncError("the weights sleep: POST /wake_up?tags=weights before an update")

    def _drop(self) -> None:
        """Forget the update under way, if there is one."""
        update, self._update, self._commit = self._update, None, None
        if update is not None:
            update.drop()

    def _note(self, session: str, state: State, why: str = "", details: Mapping[str, Any] | None = None) -> None:
        if self._ranks.leads:
            self._directory.note(Status(session, state, why, details or {}))


def _removed(files: Iterable[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)

"""An update that fits the model, on its way from the trainer to the file that it is loaded from."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import torch

from reward_loop.errors import WeightSyncError
from reward_loop.serving.inside.receiving import NotFinite, Reception
from reward_loop.serving.inside.staged_file import StagedFile, Weights
from reward_loop.serving.inside.update_directory import Status
from reward_loop.sync.manifest import Manifest
from reward_loop.sync.planes.plane import Ticket
from reward_loop.sync.planes.receivers import receiver_of


class ReceivedUpdate:
    """The update of a session; `names` are the tensors of it that are loaded."""

    def __init__(self, session: str, version: int, manifest: Manifest, names: Collection[str], path: Path | None) -> None:
        """Make the room for it in a file at `path`, None where another rank does; raises OSError if there is none."""
        self.session = session
        self.version = version
        self.names = names
        self.digests: Sequence[str] | None = None
        """One per bucket, once it was received by this rank."""
        self._manifest = manifest
        self._path = path
        self._reception: Reception | None = None
        self._staged = StagedFile.create(path, manifest) if path is not None else None

    def map(self, path: Path) -> None:
        """Read what another rank receives into this file."""
        self._staged = StagedFile(path, self._manifest)

    def receive(self, ticket: Ticket, timeout_s: float, device: torch.device | None, note: Callable[[Status], None]) -> None:
        """Begin to receive, on this GPU if any, and `note` the end: received, or why it is refused or failed."""
        if self._staged is None or self._reception is not None:
            raise WeightSyncError(f"session {self.session!r} has transferred its update already")

        def done(found: list[str] | Exception, seconds: float) -> None:
            if isinstance(found, Exception):
                refused = isinstance(found, NotFinite)
                note(Status(self.session, "refused" if refused else "failed", str(found) or repr(found)))
            else:
                self.digests = found
                note(Status(self.session, "received", details={"digests": found, "seconds": seconds}))

        receiver = receiver_of(ticket, timeout_s, device)
        self._reception = Reception(self._staged, receiver, timeout_s, done)
        self._reception.start()

    def verify(self, digests: Sequence[str]) -> None:
        """Raise WeightSyncError if the trainer's digests are not those of what came."""
        if self.digests is None:
            raise WeightSyncError(f"session {self.session!r} has received nothing that could be verified")
        if len(digests) != len(self.digests):
            raise WeightSyncError(f"{len(digests)} digests for {len(self.digests)} buckets")
        for index, (sent, came) in enumerate(zip(digests, self.digests, strict=True)):
            if sent != came:
                names = ", ".join(piece.tensor.name for piece in self._manifest.pieces[index][:3])
                raise WeightSyncError(f"bucket {index} ({names} …) came as {came}, and was sent as {sent}")

    def weights(self) -> Weights:
        """Yield the tensors that are loaded."""
        if self._staged is None:
            raise WeightSyncError(f"session {self.session!r} was not transferred")
        return self._staged.weights(self.names)

    def drop(self) -> None:
        """Stop receiving, and remove the file, unless it was committed."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)  # takes no time, as it is mapped
        if self._reception is not None:
            self._reception.abort()
        threading.Thread(target=self._end, name="weights dropped", daemon=True).start()

    def _end(self) -> None:
        if self._reception is not None:
            self._reception.join()
        if self._staged is not None:
            self._staged.close()

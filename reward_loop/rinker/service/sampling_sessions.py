"""Who samples from which weights: fixed ones, or those that a model published last."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.sampler import Snapshot


@dataclass(slots=True, eq=False)
class Published:
    """The weights of a session; what is put here is seen by every session that shares it."""

    snapshot: Snapshot | None
    """None: forgotten, because others were used since."""


class SamplingSessions:
    """The sessions of a service. What is used least recently is forgotten first."""

    def __init__(self, *, max_sessions: int, max_snapshots: int) -> None:
        self._max_sessions = max_sessions
        self._max_snapshots = max_snapshots
        self._sessions: OrderedDict[str, Published] = OrderedDict()
        self._held: OrderedDict[Published, None] = OrderedDict()

    def open(self, published: Published) -> str:
        """Return the id of a new session."""
        session_id = f"sampling-{uuid.uuid4().hex}"
        self._sessions[session_id] = published
        while len(self._sessions) > self._max_sessions:
            self._sessions.popitem(last=False)
        self._touch(published)
        return session_id

    def snapshot(self, session_id: str) -> Snapshot:
        """Return what a session samples from now. Raises RequestFailedError("user") where it is not known any more."""
        published = self._sessions.get(session_id)
        if published is None:
            raise RequestFailedError(f"there is no sampling session {session_id}", category="user")
        if published.snapshot is None:
            used = (
                f"the weights of {session_id} are no longer kept: {self._max_snapshots} other unnamed snapshots were used since"
            )
            raise RequestFailedError(f"{used}; save them under a name, or raise max_snapshots", category="user")
        self._sessions.move_to_end(session_id)
        self._touch(published)
        return published.snapshot

    def close(self, session_id: str) -> None:
        """Forget a session; its weights go with the last session that has them."""
        published = self._sessions.pop(session_id, None)
        if published is not None and published not in self._sessions.values():
            self._held.pop(published, None)
            published.snapshot = None

    def _touch(self, published: Published) -> None:
        snapshot = published.snapshot
        if snapshot is None or snapshot.weights is None or isinstance(snapshot.weights, Path):
            return  # on the disk: it takes no memory
        self._held[published] = None
        self._held.move_to_end(published)
        while len(self._held) > self._max_snapshots:
            forgotten, _ = self._held.popitem(last=False)
            forgotten.snapshot = None

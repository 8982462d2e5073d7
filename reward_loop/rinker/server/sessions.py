"""The sessions: client processes, each with its models and its sampling sessions.

Invariants: a model or a sampling session lives no longer than its session; a session that has ended is remembered for a while, so
that its client is told so. No clock: the time is given.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from dataclasses import dataclass

from reward_loop.rinker.server.refusal import Refusal
from reward_loop.rinker.server.settings import ServerSettings

_REMEMBERED = 1000


@dataclass(slots=True)
class Session:
    """One client process."""

    id: str
    seen_at: float


@dataclass(slots=True)
class Model:
    """A model in training: `id` is its name outside, `backend_id` behind."""

    id: str
    backend_id: str
    session_id: str
    base_model: str


@dataclass(slots=True)
class SamplingSession:
    """Weights that a client samples from."""

    id: str
    session_id: str
    base_model: str
    model_path: str | None = None
    joined: int = 0
    """How many clients beyond the first sample here."""


class Sessions:
    """All of them, by name."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._open: dict[str, Session] = {}
        self._ended: OrderedDict[str, str] = OrderedDict()
        self.models: dict[str, Model] = {}
        self.sampling: dict[str, SamplingSession] = {}

    def begin(self, now: float) -> Session:
        """Return a new session. Raises Refusal where there are too many."""
        if len(self._open) >= self._settings.max_sessions:
            raise Refusal(429, f"the server has its {len(self._open)} sessions already; finish one, or ask again later", 5)
        session = Session(f"s{secrets.token_hex(8)}", now)
        self._open[session.id] = session
        return session

    def get(self, session_id: str, now: float) -> Session:
        """Return a session, which has just shown that it lives. Raises Refusal: 410 if it has ended, 404 if it never was."""
        session = self._open.get(session_id)
        if session is not None:
            session.seen_at = now
            return session
        if session_id in self._ended:
            raise Refusal(410, f"session {session_id} has ended: {self._ended[session_id]}")
        raise Refusal(404, f"there is no session {session_id!r:.100}; the server may have been started anew since it was")

    def model(self, model_id: str, now: float) -> Model:
        """Return a model, whose session has just shown that it lives. Raises Refusal as `get` does."""
        model = self.models.get(model_id)
        if model is None:
            self.get(model_id.partition(":")[0], now)
            raise Refusal(404, f"there is no model {model_id!r:.100}")
        self.get(model.session_id, now)
        return model

    def sampler(self, sampling_session_id: str, now: float) -> SamplingSession:
        """Return a sampling session, whose session has just shown that it lives. Raises Refusal as `get` does."""
        sampler = self.sampling.get(sampling_session_id)
        if sampler is None:
            raise Refusal(404, f"there is no sampling session {sampling_session_id!r:.100}; its session may have ended")
        self.get(sampler.session_id, now)
        return sampler

    def overdue(self, now: float) -> list[Session]:
        """Return those that have not shown for too long that they live."""
        timeout_s = self._settings.session_timeout_s
        return [] if timeout_s is None else [one for one in self._open.values() if one.seen_at + timeout_s < now]

    def end(self, session_id: str, why: str) -> tuple[list[Model], list[SamplingSession]]:
        """Forget a session and all that it has; return its models and sampling sessions, which are to be given up behind."""
        if self._open.pop(session_id, None) is None:
            return [], []
        self._ended[session_id] = why
        if len(self._ended) > _REMEMBERED:
            self._ended.popitem(last=False)
        models = [model for model in self.models.values() if model.session_id == session_id]
        for model in models:
            del self.models[model.id]
        samplers = [sampler for sampler in self.sampling.values() if sampler.session_id == session_id]
        for sampler in samplers:
            del self.sampling[sampler.id]
        return models, samplers

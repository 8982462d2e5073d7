"""Bodies about sessions (of one client process each) and sampling sessions (weights that one of its clients samples from)."""

from __future__ import annotations

from typing import Any

from reward_loop.rinker.wire.body import Name, Number, OpenBody, Request


class CreateSession(OpenBody):
    """Asks for a session."""

    user_metadata: dict[str, Any] | None = None
    sdk_version: str = ""


class SessionBody(OpenBody):
    """Names a session: a sign of life."""

    session_id: Name


class CreateSamplingSession(Request):
    """Asks for a sampling session on saved weights (`model_path`) or on a base model."""

    session_id: Name
    sampling_session_seq_id: Number
    base_model: Name | None = None
    model_path: Name | None = None


class SamplingSessionBody(Request):
    """Names a sampling session."""

    sampling_session_id: Name

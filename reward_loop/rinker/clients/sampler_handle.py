"""How a sampling session is reached from another process."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass

from reward_loop.errors import TrainingError
from reward_loop.rinker.backend import Backend


@dataclass(frozen=True, slots=True)
class SamplerHandle:
    """Where a session is; without the key, which every process has of its own."""

    base_url: str
    session_id: str
    base_model: str

    def to_text(self) -> str:
        """Write it as one word."""
        return base64.urlsafe_b64encode(json.dumps(asdict(self)).encode()).decode()

    @classmethod
    def from_text(cls, text: str) -> SamplerHandle:
        """Read what `to_text` wrote. Raises TrainingError for what it did not."""
        try:
            return cls(**json.loads(base64.urlsafe_b64decode(text)))
        except (ValueError, TypeError) as error:
            raise TrainingError(f"{text[:40]!r} is no handle of a sampler: {error}; take it from get_sampler_handle()") from error


def handle_of(backend: Backend, session_id: str, base_model: str) -> SamplerHandle:
    """Describe a session of a backend. Raises TrainingError where the backend lives in this process only."""
    base_url = getattr(backend, "base_url", None)
    if not isinstance(base_url, str):
        here = "this SamplingClient belongs to a service in this process, which no other process can reach"
        raise TrainingError(f"{here}; start `rinker serve` and give ServiceClient its base_url")
    return SamplerHandle(base_url, session_id, base_model)

"""A service without models that the loop can run on, and that refuses to sample from sessions that are closed."""

from __future__ import annotations

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.sampler import SampleCall
from reward_loop.rinker.types import AdamParams, OptimStepResponse, SampleResponse
from tests.rinker.recording_backend import RecordingBackend


class PlayingBackend(RecordingBackend):
    """Its policies say token 0; `most_kept` says how many of them it kept at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: set[str] = set()
        self.most_kept = 0

    async def optim_step(self, model_id: str, seq_id: int, params: AdamParams) -> OptimStepResponse:
        await super().optim_step(model_id, seq_id, params)
        return OptimStepResponse({})

    async def sample(self, session_id: str, call: SampleCall) -> SampleResponse:
        response = await super().sample(session_id, call)
        if session_id not in self.kept:
            raise RequestFailedError(f"there is no sampling session {session_id}", category="user")
        return response

    async def close_sampling_session(self, session_id: str) -> None:
        await super().close_sampling_session(session_id)
        self.kept.remove(session_id)

    def _sampler(self) -> str:
        session_id = super()._sampler()
        self.kept.add(session_id)
        self.most_kept = max(self.most_kept, len(self.kept))
        return session_id

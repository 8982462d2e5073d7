"""How long a row may be: what was asked for, or what the service says that the model takes."""

from __future__ import annotations

import pytest

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.clients.service_client import ServiceClient
from reward_loop.rinker.loops.context import most_tokens
from reward_loop.rinker.types import GetServerCapabilitiesResponse
from tests.rinker.recording_backend import RecordingBackend


class Failing(RecordingBackend):
    def __init__(self, failure: RequestFailedError) -> None:
        super().__init__()
        self._failure = failure

    async def capabilities(self) -> GetServerCapabilitiesResponse:
        raise self._failure


async def most(backend: RecordingBackend, base_model: str, wanted: int | None = None, *, unread: int = 0) -> int | None:
    with ServiceClient(backend=backend) as service:
        return await most_tokens(service, await service.create_training_client(base_model), wanted, unread=unread)


async def test_the_model_takes_as_many_as_the_service_says() -> None:
    assert await most(RecordingBackend(), "base") == 64
    assert await most(RecordingBackend(), "base", 10) == 10
    assert await most(RecordingBackend(), "base", 100) == 64
    assert await most(RecordingBackend(), "base", unread=1) == 65


async def test_a_model_that_the_service_does_not_list_takes_any_number() -> None:
    assert await most(RecordingBackend(), "other") is None
    assert await most(RecordingBackend(), "other", 9) == 9


async def test_a_model_that_can_not_be_looked_at_takes_any_number_but_a_lost_service_is_an_error() -> None:
    assert await most(Failing(RequestFailedError("base can't be read", category="user")), "base") is None
    with pytest.raises(RequestFailedError, match="gone"):
        await most(Failing(RequestFailedError("the server is gone", category="server")), "base")

"""The lists of a server: its models in training, and what was saved of them."""

from __future__ import annotations

from typing import TypeVar
from urllib.parse import quote, urlencode

from reward_loop.errors import DataError
from reward_loop.rinker.remote.connection import Connection
from reward_loop.rinker.remote.transport import Answer, asked_by_the_user, unreadable
from reward_loop.rinker.service.checkpoint_path import CheckpointPath, checked_name
from reward_loop.rinker.types import CheckpointsListResponse, TrainingRun, TrainingRunsResponse, WeightsInfoResponse
from reward_loop.rinker.wire.model_bodies import WeightsInfo
from reward_loop.rinker.wire.replies import result_of

T = TypeVar("T")


class HttpCatalog:
    """A `Catalog` over a connection, which needs no session for it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def checkpoints(self, model_id: str) -> CheckpointsListResponse:
        """See `Catalog`."""
        return _listed(await self._connection.get(f"{_run(model_id)}/checkpoints"), CheckpointsListResponse)

    async def all_checkpoints(self, *, limit: int, offset: int) -> CheckpointsListResponse:
        """See `Catalog`."""
        return _listed(await self._connection.get(_part("/checkpoints", limit, offset)), CheckpointsListResponse)

    async def delete_checkpoint(self, path: str) -> None:
        """See `Catalog`."""
        parsed = CheckpointPath.parse(path)
        await self.weights_info(path)  # raises where there is none: afterwards it could not be told from one that is removed
        await self._connection.delete(f"{_run(parsed.model_id)}/checkpoints/{parsed.folder}/{quote(parsed.name, safe='')}")

    async def weights_info(self, path: str) -> WeightsInfoResponse:
        """See `Catalog`."""
        with asked_by_the_user():
            body = WeightsInfo.made(tinker_path=path)
        return _listed(await self._connection.answer("/weights_info", body), WeightsInfoResponse)

    async def training_run(self, model_id: str) -> TrainingRun:
        """See `Catalog`."""
        return _listed(await self._connection.get(_run(model_id)), TrainingRun)

    async def training_runs(self, *, limit: int, offset: int) -> TrainingRunsResponse:
        """See `Catalog`."""
        return _listed(await self._connection.get(_part("/training_runs", limit, offset)), TrainingRunsResponse)


def _run(model_id: str) -> str:
    # Checked, for a URL forgets names like "..": the server would be asked for something else.
    return f"/training_runs/{quote(checked_name(model_id, 'model id'), safe='')}"


def _part(path: str, limit: int, offset: int) -> str:
    return f"{path}?{urlencode({'limit': limit, 'offset': offset})}"


def _listed(answer: Answer, kind: type[T]) -> T:
    try:
        return result_of(answer.body, kind)
    except DataError as error:
        raise unreadable(error) from None

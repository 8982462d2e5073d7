"""The actors of one model's ranks, asked together.

Invariants: every rank gets every call; a call has one result, rank 0's, or one error; once a rank has died, or is no longer where
the others are, all are killed: half a group only waits.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from reward_loop.errors import RequestFailedError, RewardLoopError
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.runtime.learner_actor import LearnerActor
from reward_loop.rinker.runtime.ray_calls import Places, answer
from reward_loop.rinker.runtime.settings import LearnerSettings
from reward_loop.rinker.types import ModelSpec

_GRACE_S = 10.0
"""Seconds that the other ranks have to fail in the same way as the first."""


class RanksLost(Exception):
    """The ranks are gone; the message says why."""


class RankActors:
    """The ranks of a spec's model, in their places."""

    def __init__(self, spec: ModelSpec, engine: EngineSettings, settings: LearnerSettings) -> None:
        self._settings = settings
        self._places = Places(settings.ranks, settings)
        self._make = functools.partial(_actor, spec, engine, settings, self._places)
        self.actors: list[Any] = []
        """Their handles; empty while there are none."""

    async def start(self) -> None:
        """Take the places, and have every rank load the model. Raises RequestFailedError."""
        await self._places.reserve()
        try:
            await self.start_again()
        except RanksLost as error:
            raise RequestFailedError(f"the learner could not start: {error}", category="server") from error

    async def start_again(self) -> None:
        """Make the actors, and have every rank load the model. Raises RequestFailedError, or RanksLost."""
        self.kill()
        self.actors = [self._make(rank) for rank in range(self._settings.ranks)]
        limit_s = self._settings.start_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                meeting = await self._meeting() if self._settings.ranks > 1 else None
                await self.ask("load_model", meeting)
        except TimeoutError:
            self.kill()
            raise RequestFailedError(
                f"{self._settings.ranks} ranks did not load the model in {limit_s:g} s (start_timeout_s)", category="server"
            ) from None

    async def ask(self, method: str, *arguments: Any) -> Any:
        """Have every rank do something; return what rank 0 does. Raises an error of ours, or RanksLost.

        Where all ranks refuse, they are as before; any other failure ends all of them.
        """
        calls = [asyncio.ensure_future(answer(getattr(actor, method).remote(*arguments))) for actor in self.actors]
        try:
            _, late = await asyncio.wait(calls, return_when=asyncio.FIRST_EXCEPTION)
            if late:
                await asyncio.wait(late, timeout=_GRACE_S)
            errors = [call.exception() if call.done() else TimeoutError("it did not end") for call in calls]
        except asyncio.CancelledError:
            self.kill()
            raise
        finally:
            for call in calls:
                call.cancel()
        return self._result(method, calls, errors)

    def kill(self) -> None:
        """End the actors."""
        for actor in self.actors:
            ray.kill(actor)
        self.actors = []

    def close(self) -> None:
        """End the actors, and give their places back."""
        self.kill()
        self._places.release()

    async def _meeting(self) -> Any:
        try:
            return await answer(self.actors[0].host.remote())
        except RayError as error:
            self.kill()
            raise RanksLost(f"rank 0 died as it started: {error}") from error

    def _result(self, method: str, calls: Sequence[asyncio.Future[Any]], errors: Sequence[BaseException | None]) -> Any:
        failed = {rank: error for rank, error in enumerate(errors) if error is not None}
        if not failed:
            return calls[0].result()
        if all(isinstance(error, RewardLoopError) for error in failed.values()) and (
            len(failed) == len(calls) or method == "save"  # which rank 0 writes alone, and which changes nothing
        ):
            raise next(iter(failed.values()))
        if len(calls) == 1 and isinstance(errors[0], RayTaskError):  # one alone is in step with all, and still there
            raise RequestFailedError(f"{method} failed: {_in_words(errors[0])}", category="server")
        self.kill()
        each = "; ".join(f"rank {rank}: {_in_words(error)}" for rank, error in failed.items())
        raise RanksLost(f"{method} ended with {each}")


def _actor(spec: ModelSpec, engine: EngineSettings, settings: LearnerSettings, places: Places, rank: int) -> Any:
    return ray.remote(LearnerActor).options(**places.options(rank)).remote(rank, spec, engine, settings)


def _in_words(error: BaseException) -> str:
    first = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {first[0]} … {first[-1]}" if len(first) > 1 else f"{type(error).__name__}: {first[0]}"

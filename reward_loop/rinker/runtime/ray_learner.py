"""A learner in Ray actors: one process, or several ranks that train one model together.

Invariants: calls run one at a time, in the order in which they were made; what is returned is what one process would return; a
learner that recovers has done every step once, and only once, as seen from outside.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, cast
from uuid import uuid4

import ray

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.engine.settings import EngineSettings
from reward_loop.rinker.learner import LossConfig, Weights
from reward_loop.rinker.runtime.journal import Entry, Journal, Loaded, Passed
from reward_loop.rinker.runtime.rank_actors import RankActors, RanksLost
from reward_loop.rinker.runtime.ray_calls import connect
from reward_loop.rinker.runtime.settings import LearnerSettings
from reward_loop.rinker.types import AdamParams, Datum, ForwardBackwardOutput, ModelSpec, OptimStepResponse

logger = logging.getLogger(__name__)

T = TypeVar("T")


class RayLearner:
    """See `Learner`; made by `create`. A call that is cancelled goes on to its end all the same, and the next waits for it.

    When a rank dies, or fails alone, all ranks are started again, load the last checkpoint that the learner made for itself
    (`recover.every_steps`) and do again what came after it; the call that was in flight is then done once more. Without
    `recover.directory`, and after `recover.max_restarts` deaths, every call raises RequestFailedError "server".
    """

    def __init__(self, spec: ModelSpec, engine: EngineSettings | None = None, settings: LearnerSettings | None = None) -> None:
        self._spec = spec
        self._settings = settings or LearnerSettings()
        self._ranks = RankActors(spec, engine or EngineSettings(), self._settings)
        self._journal = Journal(self._settings.recover.every_steps)
        self._turn = asyncio.Lock()
        self._own: Path | None = None
        self._running: set[asyncio.Task[Any]] = set()
        self._lost = ""

    @classmethod
    async def create(cls, spec: ModelSpec, engine: EngineSettings | None = None, settings: LearnerSettings | None = None) -> Self:
        """Start the ranks and load the model; RequestFailedError where that can't be done."""
        connect()
        learner = cls(spec, engine, settings)
        try:
            await learner._ranks.start()
        except BaseException:  # cancelled too: no actor may stay behind
            await learner.close()
            raise
        return learner

    @property
    def spec(self) -> ModelSpec:
        """What is trained."""
        return self._spec

    @property
    def actors(self) -> list[Any]:
        """The handles of the ranks."""
        return list(self._ranks.actors)

    async def forward_backward(
        self, data: Sequence[Datum], loss_fn: str, config: LossConfig | None = None, *, forward_only: bool = False
    ) -> ForwardBackwardOutput:
        """See `Learner`."""
        return await self._in_turn(self._forward_backward(Passed(data, loss_fn, config), forward_only))

    async def optim_step(self, params: AdamParams) -> OptimStepResponse:
        """See `Learner`."""
        return await self._in_turn(self._optim_step(params))

    async def save(self, directory: Path, *, optimizer: bool) -> None:
        """See `Learner`."""
        await self._in_turn(self._ask("save", _absolute(directory), optimizer))

    async def load(self, directory: Path, *, optimizer: bool) -> None:
        """See `Learner`."""
        await self._in_turn(self._load(Loaded(_absolute(directory), optimizer)))

    async def weights(self) -> Weights:
        """See `Learner`."""
        weights: Weights = await self._in_turn(self._ask("weights"))
        return weights

    async def close(self) -> None:
        """End the ranks; a call that runs fails."""
        self._lost = self._lost or "it is closed"
        for task in list(self._running):
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        self._ranks.close()
        if self._own is not None:
            await asyncio.to_thread(_remove, self._own)

    async def _in_turn(self, call: Coroutine[Any, Any, T]) -> T:
        task = asyncio.ensure_future(self._alone(call))
        self._running.add(task)
        task.add_done_callback(self._ended)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # by `close`; who waits was not cancelled
                raise self._gone() from None
            raise

    async def _alone(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            async with self._turn:
                if self._lost:
                    raise self._gone()
                return await call
        finally:
            call.close()  # one whose turn never came would warn that nobody awaited it

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # looked at: who asked may be gone

    async def _forward_backward(self, passed: Passed, forward_only: bool) -> ForwardBackwardOutput:
        output = await self._ask("forward_backward", *_shipped(passed), forward_only)
        if not forward_only:
            await self._note(passed)
        return cast("ForwardBackwardOutput", output)

    async def _optim_step(self, params: AdamParams) -> OptimStepResponse:
        try:
            response = await self._ask("optim_step", params)
        except RequestFailedError as error:
            if error.category == "server":  # it has dropped the gradients; a mistake of the user's leaves them
                self._journal.dropped()
            raise
        await self._note(params)
        return cast("OptimStepResponse", response)

    async def _load(self, loaded: Loaded) -> None:
        await self._ask("load", loaded.directory, loaded.optimizer)
        await self._note(loaded)

    async def _note(self, entry: Entry) -> None:
        """Remember what has been done, for as long as no checkpoint holds it."""
        if self._recovers:
            self._journal.add(entry)
            if self._journal.due:
                await self._checkpoint()

    async def _checkpoint(self) -> None:
        """Save where the learner is now, for itself; one that can't be written is tried again after the next step."""
        own = _absolute(Path(cast("str", self._settings.recover.directory))) / f"learner-{uuid4().hex}"
        try:
            await self._ask("save", own, True)
        except RequestFailedError as error:
            if self._lost:
                raise
            logger.warning("the learner's own checkpoint could not be written: %s", error)
            return
        before, self._own = self._own, own
        self._journal.saved()
        if before is not None:
            await asyncio.to_thread(_remove, before)

    async def _ask(self, method: str, *arguments: Any) -> Any:
        """Ask the ranks; bring them back as often as they die of it, while that is allowed."""
        while True:
            try:
                return await self._ranks.ask(method, *arguments)
            except RanksLost as error:
                await self._recover(str(error))

    async def _recover(self, why: str) -> None:
        """Start the ranks again, where the last call that ended has left them. Raises RequestFailedError if that can't be."""
        while True:
            self._journal.restarts += 1
            if not self._recovers or self._journal.restarts > self._settings.recover.max_restarts:
                self._lost = why
                raise self._gone()
            logger.warning("the learner lost its ranks, restart=%d: %s", self._journal.restarts, why)
            try:
                await self._ranks.start_again()
                await self._replay()
                return
            except RanksLost as error:
                why = str(error)
            except Exception as error:  # whatever it is: the ranks are not where the last call has left them
                self._ranks.kill()
                self._lost = f"{why}; and they did not come back: {error}"
                raise self._gone() from error

    async def _replay(self) -> None:
        if self._own is not None:
            await self._ranks.ask("load", self._own, True)
        for entry in self._journal.entries:
            match entry:
                case Passed():
                    await self._ranks.ask("forward_backward", *_shipped(entry), False)
                case AdamParams():
                    await self._ranks.ask("optim_step", entry)
                case Loaded(directory, optimizer):
                    await self._ranks.ask("load", directory, optimizer)

    @property
    def _recovers(self) -> bool:
        return self._settings.recover.directory is not None

    def _gone(self) -> RequestFailedError:
        remedy = "create the model again, from a checkpoint of it" + ("" if self._recovers else "; or set recover.directory")
        return RequestFailedError(f"the learner's processes are gone: {self._lost}; {remedy}", category="server")


def _shipped(passed: Passed) -> tuple[Any, str, LossConfig | None]:
    """Put the data into Ray's store once, for all ranks."""
    return ray.put(list(passed.data)), passed.loss_fn, passed.config


def _absolute(path: Path) -> Path:
    """Return the path as it is in another process, whose working directory is another."""
    return path.absolute()


def _remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)

"""A policy whose answers are known, and whose failures come when a test asks for them."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from reward_loop.rinker.futures import APIFuture
from reward_loop.rinker.rl.config import FailureConfig
from reward_loop.rinker.rl.policy import Policy, SamplingSettings
from reward_loop.rinker.types import ModelInput, SampledSequence, SampleResponse, SamplingParams

T = TypeVar("T")


class TaskFuture(APIFuture[T]):
    """An APIFuture of this event loop; a real client's is of another thread's."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._task = asyncio.ensure_future(work)
        self._outside: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._outside.add_done_callback(lambda done: self._task.cancel() if done.cancelled() else None)

    def result(self, timeout: float | None = None) -> T:
        raise NotImplementedError

    async def result_async(self, timeout: float | None = None) -> T:  # noqa: ASYNC109 - the SDK's signature
        return await self._task

    def future(self) -> concurrent.futures.Future[T]:
        return self._outside


Answer = Callable[[list[int], SamplingParams], Awaitable[list[int]]]
Score = Callable[[list[int]], Awaitable[list[float | None]]]


async def copies(prompt: list[int], params: SamplingParams) -> list[int]:
    """What copies the digits between the first and the last token of the prompt."""
    return prompt[1:-1]


async def twos(prompt: list[int]) -> list[float | None]:
    """What gives every token -2."""
    return [None, *[-2.0] * (len(prompt) - 1)]


class ScriptedClient:
    """A sampling client that answers as `answer` says, and gives tokens what `score` says; what it was asked is in `calls`."""

    def __init__(self, answer: Answer = copies, score: Score = twos) -> None:
        self.answer, self.score = answer, score
        self.calls: list[tuple[list[int], SamplingParams]] = []
        self.running = self.most_running = self.cancelled = 0
        self._changed = asyncio.Condition()

    def sample(self, prompt: ModelInput, num_samples: int, sampling_params: SamplingParams) -> APIFuture[SampleResponse]:
        self.calls.append((prompt.to_ints(), sampling_params))
        return TaskFuture(self._sample(prompt.to_ints(), sampling_params))

    def compute_logprobs(self, prompt: ModelInput) -> APIFuture[list[float | None]]:
        return TaskFuture(self._begun(self.score(prompt.to_ints())))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds that changes when a call begins."""
        async with self._changed:
            await self._changed.wait_for(condition)

    async def _sample(self, prompt: list[int], params: SamplingParams) -> SampleResponse:
        tokens = await self._begun(self.answer(prompt, params))
        return SampleResponse([SampledSequence("stop", tokens, [-1.0] * len(tokens))])

    async def _begun(self, work: Awaitable[T]) -> T:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            async with self._changed:
                self._changed.notify_all()
            await asyncio.sleep(0)  # others get to ask too before the first has its answer
            return await work
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1


def policy_of(client: ScriptedClient, step: int = 0, seed: int = 0, **failures: Any) -> Policy:
    patience = FailureConfig.model_validate({"backoff_s": 0.0, **failures})
    return Policy(client, step, SamplingSettings(max_tokens=3, temperature=1.0, seed=seed, failures=patience))

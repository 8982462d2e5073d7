"""A policy whose answers are known, and whose failures come when a test asks for them."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeVar

from reward_loop.rinker.futures import APIFuture
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


async def copies(prompt: list[int], params: SamplingParams) -> list[int]:
    """What copies the digits between the first and the last token of the prompt."""
    return prompt[1:-1]


class ScriptedClient:
    """A sampling client that answers as `answer` says; its calls are in `calls`."""

    def __init__(self, answer: Answer = copies) -> None:
        self.answer = answer
        self.calls: list[tuple[list[int], SamplingParams]] = []
        self.running = self.most_running = self.cancelled = 0
        self._changed = asyncio.Condition()

    def sample(self, prompt: ModelInput, num_samples: int, sampling_params: SamplingParams) -> APIFuture[SampleResponse]:
        self.calls.append((prompt.to_ints(), sampling_params))
        return TaskFuture(self._sample(prompt.to_ints(), sampling_params))

    def compute_logprobs(self, prompt: ModelInput) -> APIFuture[list[float | None]]:
        async def known() -> list[float | None]:
            return [None, *[-2.0] * (prompt.length - 1)]

        return TaskFuture(known())

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds that changes when a call begins."""
        async with self._changed:
            await self._changed.wait_for(condition)

    async def _sample(self, prompt: list[int], params: SamplingParams) -> SampleResponse:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            async with self._changed:
                self._changed.notify_all()
            await asyncio.sleep(0)  # others get to ask too before the first has its answer
            tokens = await self.answer(prompt, params)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        return SampleResponse([SampledSequence("stop", tokens, [-1.0] * len(tokens))])


def policy_of(client: ScriptedClient, step: int = 0, **settings: Any) -> Policy:
    return Policy(client, step, replace(SamplingSettings(max_tokens=3, backoff_s=0.0), **settings))

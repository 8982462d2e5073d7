"""The policies of a run whose weights the service keeps.

Invariants: weights are given back once nobody samples from them any more, and all of them at the end; a service that fails to
take them back ends no run.
"""

from __future__ import annotations

from collections.abc import Set
from types import TracebackType
from typing import Self

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.clients.sampling_client import SamplingClient
from reward_loop.rinker.clients.training_client import TrainingClient
from reward_loop.rinker.loops.giving_back import gave_back
from reward_loop.rinker.rl.policy import Policy, SamplingSettings


class Policies:
    """Takes the weights of a model as policies; a context manager."""

    def __init__(self, client: TrainingClient, settings: SamplingSettings) -> None:
        self._client, self._settings = client, settings
        self._kept: dict[int, SamplingClient] = {}
        self._takes_back = True

    async def take(self, step: int) -> Policy:
        """Return the policy of the weights as they are now, which have made `step` steps."""
        client = self._kept[step] = await self._client.save_weights_and_get_sampling_client()
        return Policy(client, step, self._settings)

    async def keep_only(self, steps: Set[int]) -> None:
        """Give the weights of the policies of all other steps back."""
        for step in sorted(self._kept.keys() - steps):
            client = self._kept.pop(step)
            if self._takes_back:
                # Not asked again where that failed: a service that has no such call, or is lost, would cost time at every step.
                self._takes_back = await gave_back(client.close, f"the policy of step={step} is not given back")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # What is lost takes nothing back, and the run that goes on should not wait for it.
        self._takes_back &= not (isinstance(error, RequestFailedError) and error.category == "server")
        await self.keep_only(frozenset())

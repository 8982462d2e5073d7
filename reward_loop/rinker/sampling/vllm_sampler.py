"""Sampling from vLLM servers, which get the weights of a snapshot when it is first asked for.

Invariants: an answer is computed by one snapshot's weights: another's are published only once all that runs has ended, and an
answer whose server names another version is thrown away; a call that failed is asked again elsewhere with the same seed.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.sampler import SampleCall, Snapshot
from reward_loop.rinker.sampling.checks import checked_prompt, token_budget
from reward_loop.rinker.sampling.profile import ModelProfile, read_profile
from reward_loop.rinker.sampling.vllm_fleet import ServedModel, VLLMFleet
from reward_loop.rinker.sampling.vllm_settings import VLLMSamplerSettings
from reward_loop.rinker.sampling.vllm_turns import SnapshotTurns
from reward_loop.rinker.sampling.vllm_weights import ServedWeights
from reward_loop.rinker.sampling.vllm_wire import request_of, response_of
from reward_loop.rinker.types import SampleResponse
from reward_loop.scoring.model_version import version_of
from reward_loop.sync.servers import url_of

logger = logging.getLogger(__name__)

_ATTEMPTS = 3


class VLLMSampler:
    """A `Sampler` on the servers at these addresses, which all serve `base_model` and are nobody else's to publish to.

    Raises ConfigError for what is no address.
    """

    def __init__(
        self,
        servers: Sequence[str],
        base_model: str,
        settings: VLLMSamplerSettings | None = None,
        *,
        trust_remote_code: bool = False,
    ) -> None:
        settings = settings or VLLMSamplerSettings()
        urls = tuple(dict.fromkeys(url_of(server) for server in servers))
        self._base_model, self._trust_remote_code = base_model, trust_remote_code
        self._fleet = VLLMFleet(urls, settings)
        self._weights = ServedWeights(urls, settings.sync, settings.api_key_env, trust_remote_code=trust_remote_code)
        self._turns = SnapshotTurns(self._weights.serve)
        self._known: tuple[ServedModel, ModelProfile] | None = None

    async def sample(self, snapshot: Snapshot, call: SampleCall) -> SampleResponse:
        """See `Sampler.sample`; a snapshot that is not served is published first, once what runs has ended."""
        self._check_base(snapshot)
        served, profile = self._known or await self._look()
        checked_prompt(call, profile)
        body = request_of(served.name, call, token_budget(call, profile))
        for _ in range(_ATTEMPTS):
            async with self._turns.of(snapshot):
                expected = self._weights.version
                reply = await self._fleet.complete(body)
                version = version_of(reply)
                if expected is None or version == expected:
                    return response_of(call, reply.body)
                logger.warning("server=%s holds version=%s and not %d: published again", reply.url, version, expected)
                self._turns.forget()
        raise RequestFailedError(
            f"a server held other weights than were published to it, {_ATTEMPTS} times: somebody else publishes to it; give "
            "every sampler servers of its own",
            category="server",
        )

    async def close(self) -> None:
        """See `Sampler.close`; the servers go on."""
        await self._turns.close()

    async def _look(self) -> tuple[ServedModel, ModelProfile]:
        served = await self._fleet.model()
        profile = await asyncio.to_thread(read_profile, self._base_model, trust_remote_code=self._trust_remote_code)
        contexts = [length for length in (profile.context, served.max_length) if length is not None]
        self._known = served, dataclasses.replace(profile, context=min(contexts) if contexts else None)
        return self._known

    def _check_base(self, snapshot: Snapshot) -> None:
        if snapshot.base_model != self._base_model and not _same_place(snapshot.base_model, self._base_model):
            raise RequestFailedError(
                f"the servers run {self._base_model} and {snapshot.id} is of {snapshot.base_model}; start servers of it",
                category="user",
            )


def _same_place(one: str, other: str) -> bool:
    return Path(one).is_dir() and Path(other).is_dir() and Path(one).resolve() == Path(other).resolve()

"""Sampling from a Hugging Face model in this process: calls that wait at the same time run together."""

from __future__ import annotations

import asyncio
import secrets
import threading

from reward_loop.rinker.sampler import SampleCall, Snapshot
from reward_loop.rinker.sampling.checks import checked_prompt, token_budget
from reward_loop.rinker.sampling.job import Job
from reward_loop.rinker.sampling.loaded_models import LoadedModels
from reward_loop.rinker.sampling.profile import ModelProfile, read_profile
from reward_loop.rinker.sampling.settings import HFSamplerSettings
from reward_loop.rinker.sampling.stops import Decode, Stops
from reward_loop.rinker.sampling.tokenizer import read_tokenizer
from reward_loop.rinker.sampling.worker import SamplingWorker
from reward_loop.rinker.types import SampleResponse


class HFSampler:
    """A `Sampler` on transformers, with a key-value cache; it computes in a thread of its own.

    The log-probabilities are the model's own, before temperature, top_k and top_p: what the trainer computes for the same tokens.
    """

    def __init__(self, settings: HFSamplerSettings | None = None) -> None:
        self._settings = settings or HFSamplerSettings()
        self._worker = SamplingWorker(LoadedModels(self._settings), self._settings)
        self._profiles: dict[str, ModelProfile] = {}
        self._reading = threading.Lock()

    async def sample(self, snapshot: Snapshot, call: SampleCall) -> SampleResponse:
        """See `Sampler.sample`; cancelling it takes its sequences out of the batch."""
        profile = self._profiles.get(snapshot.base_model)
        if profile is None:
            profile = await asyncio.to_thread(self._read_profile, snapshot.base_model)
        prompt = checked_prompt(call, profile)
        stops = Stops(call.params, profile, await self._decode(snapshot.base_model, call))
        seed = secrets.randbits(64) if call.params.seed is None else call.params.seed
        job = Job(snapshot, profile, call, prompt, token_budget(call, profile), seed, stops)
        self._worker.submit(job)
        return await asyncio.wrap_future(job.future)

    async def close(self) -> None:
        """See `Sampler.close`; what waits fails."""
        await asyncio.to_thread(self._worker.close)

    def _read_profile(self, base_model: str) -> ModelProfile:
        with self._reading:
            if base_model not in self._profiles:
                self._profiles[base_model] = read_profile(base_model, trust_remote_code=self._settings.trust_remote_code)
            return self._profiles[base_model]

    async def _decode(self, base_model: str, call: SampleCall) -> Decode:
        stop = call.params.stop
        if stop is None or not any(isinstance(one, str) for one in ([stop] if isinstance(stop, str) else stop)):
            return _never
        return await asyncio.to_thread(self._read_decode, base_model)

    def _read_decode(self, base_model: str) -> Decode:
        with self._reading:
            tokenizer = read_tokenizer(base_model, trust_remote_code=self._settings.trust_remote_code)

        def decode(tokens: object) -> str:
            text: str = tokenizer.decode(tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False)
            return text

        return decode


def _never(_: object) -> str:
    return ""

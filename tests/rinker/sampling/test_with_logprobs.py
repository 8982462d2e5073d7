from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.sampler import SampleCall, Snapshot
from reward_loop.rinker.sampling.hf_sampler import HFSampler
from reward_loop.rinker.sampling.settings import HFSamplerSettings
from reward_loop.rinker.sampling.with_logprobs import WithLogprobs
from reward_loop.rinker.types import SampleResponse
from tests.one_thread import one_thread as one_thread
from tests.rinker.conformance.tiny_policy import tiny_policy
from tests.rinker.sampling.policies import call


class Silent:
    """A sampler whose backend gives no log-probabilities, as some servers do not."""

    def __init__(self, inner: HFSampler) -> None:
        self.inner = inner

    async def sample(self, snapshot: Snapshot, call: SampleCall) -> SampleResponse:
        response = await self.inner.sample(snapshot, call)
        return replace(response, sequences=[replace(sequence, logprobs=None) for sequence in response.sequences])

    async def close(self) -> None:
        await self.inner.close()


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    return Snapshot("base", tiny_policy(tmp_path_factory.mktemp("policy"), initializer_range=0.2))


async def test_what_is_missing_is_computed_and_said_once(snapshot: Snapshot, caplog: pytest.LogCaptureFixture) -> None:
    inner = HFSampler(HFSamplerSettings(device="cpu"))
    sampler = WithLogprobs(Silent(inner), HFSampler(HFSamplerSettings(device="cpu")))
    seeded = call([1, 2, 3], 3, seed=5, max_tokens=61)  # up to the end of the context
    expected = (await inner.sample(snapshot, seeded)).sequences
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            got = (await sampler.sample(snapshot, seeded)).sequences
            for one, other in zip(got, expected, strict=True):
                assert one.tokens == other.tokens
                assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
    assert [record.message for record in caplog.records] == [
        "Silent gives no log-probabilities; they are computed by another pass over what it drew"
    ]
    await sampler.close()


async def test_what_a_sampler_gives_is_taken_as_it_is(snapshot: Snapshot, caplog: pytest.LogCaptureFixture) -> None:
    inner = HFSampler(HFSamplerSettings(device="cpu"))
    sampler = WithLogprobs(inner, Silent(inner))
    assert (await sampler.sample(snapshot, call([1, 2]))).sequences[0].logprobs
    assert caplog.records == []
    await sampler.close()


async def test_an_error_of_the_scorer_is_the_calls_error(snapshot: Snapshot) -> None:
    scorer = HFSampler(HFSamplerSettings(device="cpu"))
    await scorer.close()
    sampler = WithLogprobs(Silent(HFSampler(HFSamplerSettings(device="cpu"))), scorer)
    with pytest.raises(RequestFailedError, match="the sampler is closed"):
        await sampler.sample(snapshot, call([1, 2], 2))
    await sampler.close()

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from reward_loop.errors import RequestFailedError, TrainingError
from reward_loop.rinker.clients.sampling_client import SamplingClient
from reward_loop.rinker.clients.service_client import ServiceClient
from reward_loop.rinker.types import ModelInput, SamplingParams, TensorData
from tests.rinker.conformance.tiny_policy import tiny_policy
from tests.rinker.recording_backend import RecordingBackend

PROMPT = ModelInput.from_ints([1, 2, 3])
PARAMS = SamplingParams(max_tokens=1)


class RemoteBackend(RecordingBackend):
    """One that other processes could reach."""

    base_url = "http://127.0.0.1:9"


@pytest.fixture
def sampler() -> Iterator[SamplingClient]:
    with ServiceClient(backend=RecordingBackend()) as service:
        yield service.create_sampling_client(model_path="tinker://m/sampler_weights/a").result()


def test_sequences_come_with_or_without_scores_of_the_prompt(sampler: SamplingClient) -> None:
    plain = sampler.sample(PROMPT, 2, PARAMS).result()
    assert ([sequence.tokens for sequence in plain.sequences], plain.prompt_logprobs) == ([[0], [1]], None)
    assert sampler.sample(PROMPT, 1, PARAMS, True).result().prompt_logprobs == [None, -1.0, -2.0]
    last = sampler.sample(
        prompt=PROMPT, num_samples=1, sampling_params=PARAMS, include_prompt_logprobs=True, prompt_logprobs_last_n=1
    )
    assert last.result().prompt_logprobs == [None, None, -2.0]


async def test_logprobs_of_a_prompt_are_computed(sampler: SamplingClient) -> None:
    assert sampler.compute_logprobs(PROMPT).result() == [None, -1.0, -2.0]
    assert await sampler.compute_logprobs_async(PROMPT, prompt_logprobs_last_n=1) == [None, None, -2.0]
    assert (await sampler.sample_async(PROMPT, 1, PARAMS)).sequences[0].logprobs == [-0.5]
    assert await sampler.get_base_model_async() == sampler.get_base_model() == "base"


@pytest.mark.parametrize("last", [0, -1, 3])
def test_scores_of_more_tokens_than_there_are_cant_be_asked_for(sampler: SamplingClient, last: int) -> None:
    with pytest.raises(ValueError, match=f"prompt_logprobs_last_n={last}; give 1 to 2"):
        sampler.compute_logprobs(PROMPT, last)
    with pytest.raises(ValueError, match="set include_prompt_logprobs too"):
        sampler.sample(PROMPT, 1, PARAMS, prompt_logprobs_last_n=1)


def test_what_no_sampler_here_has_is_refused(sampler: SamplingClient) -> None:
    with pytest.raises(RequestFailedError, match="target_prompt_logprobs and prompt_alt_tokens_k are not offered"):
        sampler.sample(PROMPT, 1, PARAMS, prompt_alt_tokens_k=1)
    with pytest.raises(RequestFailedError, match="target_prompt_logprobs and prompt_alt_tokens_k are not offered"):
        sampler.sample(PROMPT, 1, PARAMS, target_prompt_logprobs=TensorData([[1], [1]], "int64"))


def test_a_client_of_a_service_in_this_process_cant_be_pickled(sampler: SamplingClient) -> None:
    for send in (pickle.dumps, SamplingClient.get_sampler_handle):
        with pytest.raises(TrainingError, match=r"a service in this process.*rinker serve"):
            send(sampler)


def test_a_client_of_a_server_goes_to_other_processes_without_its_key() -> None:
    backend = RemoteBackend()
    with ServiceClient(backend=backend) as service:
        sampler = service.create_sampling_client(base_model="base").result()
        copy = pickle.loads(pickle.dumps(sampler))
        other = SamplingClient.from_sampler_handle(sampler.get_sampler_handle(), api_key="tml-other")
    for one in (copy, other):
        assert one.get_base_model() == "base"
        assert one.get_sampler_handle() == sampler.get_sampler_handle()


def test_a_handle_that_is_none_is_refused() -> None:
    with pytest.raises(TrainingError, match="'nonsense' is no handle of a sampler"):
        SamplingClient.from_sampler_handle("nonsense")


def test_a_model_without_a_tokenizer_says_so(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tiny_policy(tmp_path_factory.mktemp("policy"))
    with ServiceClient(backend=RecordingBackend()) as service:
        sampler = service.create_sampling_client(base_model=path).result()
    with pytest.raises(RequestFailedError, match="has no tokenizer"):
        sampler.get_tokenizer()

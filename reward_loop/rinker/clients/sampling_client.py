"""Draw from weights that stay as they are, or from those that a model published last."""

from __future__ import annotations

from typing import Any

from reward_loop.errors import RequestFailedError
from reward_loop.rinker.clients.connection import Connection
from reward_loop.rinker.clients.sampler_handle import SamplerHandle, handle_of
from reward_loop.rinker.futures import APIFuture
from reward_loop.rinker.sampler import SampleCall
from reward_loop.rinker.types import ModelInput, SampleResponse, SamplingParams, TensorData


class SamplingClient:
    """A sampling session. `ServiceClient` and `TrainingClient` make it.

    One of a service that is reached by HTTP can be pickled, and sent to other processes.
    """

    def __init__(self, connection: Connection, session_id: str, base_model: str) -> None:
        self._connection = connection
        self._session_id = session_id
        self._base_model = base_model

    @classmethod
    async def open(
        cls, connection: Connection, *, model_path: str | None = None, base_model: str | None = None
    ) -> SamplingClient:
        """Open a session on the connection's loop."""
        session_id = await connection.backend.create_sampling_session(model_path=model_path, base_model=base_model)
        return cls(connection, session_id, base_model or await connection.backend.sampling_session_model(session_id))

    def sample(
        self,
        prompt: ModelInput,
        num_samples: int,
        sampling_params: SamplingParams,
        include_prompt_logprobs: bool = False,
        topk_prompt_logprobs: int = 0,
        topk_sample_logprobs: int = 0,
        target_prompt_logprobs: TensorData | None = None,
        prompt_alt_tokens_k: int = 0,
        prompt_logprobs_last_n: int | None = None,
    ) -> APIFuture[SampleResponse]:
        """Draw `num_samples` sequences behind a prompt.

        `prompt_logprobs_last_n` leaves the log-probabilities of all but the last tokens of the prompt out. Raises ValueError for
        arguments that contradict each other, RequestFailedError for what no sampler here has (`target_prompt_logprobs`,
        `prompt_alt_tokens_k`).
        """
        if target_prompt_logprobs is not None or prompt_alt_tokens_k:
            raise RequestFailedError(
                "target_prompt_logprobs and prompt_alt_tokens_k are not offered; leave them out", category="user"
            )
        _check_last(prompt_logprobs_last_n, prompt, include_prompt_logprobs)
        call = SampleCall(
            prompt, num_samples, sampling_params, include_prompt_logprobs, topk_prompt_logprobs, topk_sample_logprobs
        )
        return self._connection.start(self._sample(call, prompt_logprobs_last_n))

    async def sample_async(
        self,
        prompt: ModelInput,
        num_samples: int,
        sampling_params: SamplingParams,
        include_prompt_logprobs: bool = False,
        topk_prompt_logprobs: int = 0,
        topk_sample_logprobs: int = 0,
        target_prompt_logprobs: TensorData | None = None,
        prompt_alt_tokens_k: int = 0,
        prompt_logprobs_last_n: int | None = None,
    ) -> SampleResponse:
        """`await sample(…)`."""
        return await self.sample(
            prompt,
            num_samples,
            sampling_params,
            include_prompt_logprobs,
            topk_prompt_logprobs,
            topk_sample_logprobs,
            target_prompt_logprobs,
            prompt_alt_tokens_k,
            prompt_logprobs_last_n,
        )

    def compute_logprobs(self, prompt: ModelInput, prompt_logprobs_last_n: int | None = None) -> APIFuture[list[float | None]]:
        """Score the tokens of a prompt, of which the first has nothing before it: None."""
        _check_last(prompt_logprobs_last_n, prompt, True)
        return self._connection.start(self._logprobs(prompt, prompt_logprobs_last_n))

    async def compute_logprobs_async(self, prompt: ModelInput, prompt_logprobs_last_n: int | None = None) -> list[float | None]:
        """`await compute_logprobs(…)`."""
        return await self.compute_logprobs(prompt, prompt_logprobs_last_n)

    def close(self) -> APIFuture[None]:
        """End the session, and free its weights if nobody else samples from them: what is asked of it now fails.

        The SDK has no such method: there a session ends with that of the ServiceClient.
        """
        return self._connection.start(self._connection.backend.close_sampling_session(self._session_id))

    def get_base_model(self) -> str:
        """Return the base model's name."""
        return self._base_model

    async def get_base_model_async(self) -> str:
        """`get_base_model()`."""
        return self._base_model

    def get_tokenizer(self) -> Any:
        """Return the base model's tokenizer, loaded in this process. RequestFailedError where it has none."""
        # Imported here: a client that never asks for it need not load transformers.
        from reward_loop.rinker.sampling.tokenizer import read_tokenizer

        return read_tokenizer(self._base_model)

    def get_sampler_handle(self) -> str:
        """Return a text by which other processes reach the same sampler; no key is in it. TrainingError where they can't."""
        return handle_of(self._connection.backend, self._session_id, self._base_model).to_text()

    @staticmethod
    def from_sampler_handle(handle: str, *, api_key: str | None = None) -> SamplingClient:
        """Return a client for the sampler of a handle; the key is `api_key`, or this process's TINKER_API_KEY."""
        return _reconnect(SamplerHandle.from_text(handle), api_key)

    def __reduce__(self) -> tuple[Any, tuple[SamplerHandle]]:
        return _reconnect, (handle_of(self._connection.backend, self._session_id, self._base_model),)

    async def _sample(self, call: SampleCall, last: int | None) -> SampleResponse:
        response = await self._connection.backend.sample(self._session_id, call)
        if last is None:
            return response
        logprobs, top = _only_last(response.prompt_logprobs, last), _only_last(response.topk_prompt_logprobs, last)
        return SampleResponse(response.sequences, logprobs, top)

    async def _logprobs(self, prompt: ModelInput, last: int | None) -> list[float | None]:
        # Greedy: the one token that has to be drawn is thrown away, so it need not cost a random number.
        call = SampleCall(prompt, 1, SamplingParams(max_tokens=1, temperature=0.0), include_prompt_logprobs=True)
        response = await self._sample(call, last)
        if response.prompt_logprobs is None:
            raise RequestFailedError("the sampler gave no log-probabilities of the prompt", category="server")
        return response.prompt_logprobs


def _reconnect(handle: SamplerHandle, api_key: str | None = None) -> SamplingClient:
    # Imported here: a client in this process needs no HTTP.
    from reward_loop.rinker.clients.remote_backend import remote_backend

    return SamplingClient(Connection(remote_backend(handle.base_url, api_key)), handle.session_id, handle.base_model)


def _check_last(last: int | None, prompt: ModelInput, scored: bool) -> None:
    if last is None:
        return
    if not scored:
        raise ValueError("prompt_logprobs_last_n is about the log-probabilities of the prompt: set include_prompt_logprobs too")
    if not 1 <= last < prompt.length:
        raise ValueError(f"prompt_logprobs_last_n={last}; give 1 to {prompt.length - 1}, the tokens of the prompt that have one")


def _only_last(values: list[Any] | None, count: int) -> list[Any] | None:
    return None if values is None else [None] * (len(values) - count) + values[-count:]

"""Scores from the engine behind this server: what is asked becomes prompts, what comes back becomes numbers.

Invariant: an input is scored whole or refused; a score is finite. vLLM's own errors pass through.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from vllm import PoolingParams
from vllm.exceptions import VLLMClientError
from vllm.inputs import TextPrompt
from vllm.inputs.engine import tokens_input
from vllm.model_executor.models import ModelRegistry

from reward_loop.serving.inside.pooling import ServerPooling
from reward_loop.serving.inside.reply import Refusal, Reply, bad_inputs, bad_request
from reward_loop.serving.inside.score_request import ScoreRequest

_TASKS = ("classify", "token_classify")
_COUNTED_BEYOND = 16
"""A text is still tokenised to tell its length where it has at most so many times the characters that could fit."""


@dataclass(frozen=True, slots=True)
class Engine:
    """vLLM's engine as its server's state has it, and the model that it serves."""

    client: Any
    models: Any
    """vLLM's table of the names that this server answers to."""
    task: Any
    """What the model is pooled for; None for one that generates."""
    pooling: ServerPooling | None
    """How the server pools; None if it is no reward model."""

    @classmethod
    def of(cls, state: Any) -> Engine:
        """Return the engine of the server with this state (vLLM's `app.state`)."""
        serving = getattr(state, "serving_pooling", None)
        task = serving and serving.pooling_task
        pooling = _pooling(state.engine_client.model_config, task) if task in _TASKS else None
        return cls(state.engine_client, state.openai_serving_models, task, pooling)

    @property
    def model(self) -> str:
        """The name that the model is served under."""
        return str(self.models.model_name())

    @property
    def max_tokens(self) -> int:
        """Tokens that an input may have."""
        return int(self.client.model_config.max_model_len)

    async def score(self, request: ScoreRequest) -> Reply:
        """Score every input of the request; raises Refusal for a bad request, bad inputs and scores that are not finite."""
        pooling = self._checked(request)
        prompts = await self._prompts(request.inputs)
        params = PoolingParams(task=self.task, use_activation=request.normalize)
        name = f"score-{uuid4().hex}"
        outputs = await _all(self._output(prompt, params, f"{name}-{at}") for at, prompt in enumerate(prompts))
        return self._reply(request, pooling, outputs)

    def _checked(self, request: ScoreRequest) -> ServerPooling:
        if self.pooling is None:
            raise bad_request(f"{self.model} is no reward model (task {self.task or 'generate'}): /score can't be asked")
        if request.model and not self.models.is_base_model(request.model):
            raise Refusal(404, "unknown_model", f"model {request.model!r} is not served here; {self.model!r} is")
        if request.pooling and (why := self.pooling.unmet(request.pooling, normalize=request.normalize)):
            raise bad_request(f"pooling_type={request.pooling}, but this server pools {self.pooling.own}; {why}")
        return self.pooling

    async def _prompts(self, inputs: list[str] | list[list[int]]) -> list[Any]:
        """Return what the engine takes for each input; raises Refusal that names the inputs that it can't take."""
        prompts = await _all(self._prompt(one) for one in inputs)
        if why := {at: prompt for at, prompt in enumerate(prompts) if isinstance(prompt, str)}:
            raise bad_inputs(400, "bad_input", why)
        return prompts

    async def _prompt(self, one: str | list[int]) -> Any:
        """Return what the engine takes for this input, or as text why it can't take it."""
        renderer = self.client.renderer
        try:
            if isinstance(one, str):
                [prompt] = await renderer.render_cmpl_async([TextPrompt(prompt=one)])
            else:
                renderer.validate_token_ids(one)
                prompt = tokens_input(one)
        except VLLMClientError as error:
            return await self._too_long(one) or str(error)
        tokens = len(prompt["prompt_token_ids"])
        if tokens > self.max_tokens:
            return self._length(f"{tokens} tokens")
        return prompt if tokens else "is empty: there is no token to score"

    async def _too_long(self, one: str | list[int]) -> str | None:
        """Return how long this text is if it is too long: vLLM stops counting at the limit."""
        renderer = self.client.renderer
        longest = self.max_tokens * renderer.get_tokenizer().max_chars_per_token
        if len(one) > longest * _COUNTED_BEYOND:
            return self._length(f"{len(one)} characters")
        unbounded = replace(renderer.default_cmpl_tok_params, max_total_tokens=None)
        [prompt] = await renderer.render_cmpl_async([TextPrompt(prompt=str(one))], unbounded)
        tokens = len(prompt["prompt_token_ids"])
        return self._length(f"{tokens} tokens") if tokens > self.max_tokens else None

    def _length(self, found: str) -> str:
        return f"has {found}, more than the {self.max_tokens} tokens that the server takes (max_model_len); shorten it"

    async def _output(self, prompt: Any, params: PoolingParams, request_id: str) -> Any:
        """Return the last output that the engine gives for this prompt: the only one."""
        output = None
        async for output in self.client.encode(prompt, params, request_id):
            if output.error is not None:
                raise Refusal(503 if output.error.retryable else 500, "engine_failed", output.error.message)
        return output

    def _reply(self, request: ScoreRequest, pooling: ServerPooling, outputs: list[Any]) -> Reply:
        asked = request.pooling or pooling.own
        scores = [pooling.derived(asked, output.outputs.data, output.prompt_token_ids) for output in outputs]
        labels = int(scores[0].shape[-1])
        if request.n_labels not in (None, labels):
            raise bad_request(
                f"n_labels={request.n_labels}, but {self.model} gives {labels} labels; ask for them or leave n_labels out"
            )
        if why := {at: f"its score is {one.tolist()}" for at, one in enumerate(scores) if not one.isfinite().all()}:
            raise bad_inputs(500, "not_finite", why)
        values = [(one.squeeze(-1) if labels == 1 else one).tolist() for one in scores]
        tokens = sum(len(output.prompt_token_ids) for output in outputs)
        return Reply(
            200,
            {
                "model": self.model,
                "data": [{"index": at, "score": value} for at, value in enumerate(values)],
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            },
        )

    def about(self) -> Mapping[str, Any]:
        """Return what the server says of itself in /health."""
        served = {"model": self.model, "max_model_len": self.max_tokens}
        if self.pooling is None:
            return {"type": "generative", **served}
        return {"type": "reward_model", "pooling": self.pooling.own, **served}


async def _all(work: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Await all of it side by side; the first failure ends the rest and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


def _pooling(model: Any, task: str) -> ServerPooling:
    """Return how this model (vLLM's `ModelConfig`) is pooled for this task."""
    config = model.pooler_config
    own = config.seq_pooling_type if task == "classify" else config.tok_pooling_type
    # vLLM gives what it knows as a language model a head of its own: one linear layer.
    backbone, kind, _ = str(model.architecture).partition("ForSequenceClassification")
    linear = bool(kind) and f"{backbone}ForCausalLM" in ModelRegistry.get_supported_archs()
    return ServerPooling(own, config.step_tag_id, linear)

"""A judge model behind an OpenAI-compatible service: asked, paid for and read in one place.

Invariants: what a reply used is recorded as soon as it is there; every failure of the service is a JudgeError, from what it
failed with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from reward_loop.errors import ConfigError, JudgeError, RewardServerError
from reward_loop.rubrics.judges.turns import Turns
from reward_loop.rubrics.judges.usage import JudgeUsage, Prices, record
from reward_loop.scoring.chat import Messages, chat_complete
from reward_loop.scoring.chat_reply import ChatReply

Enforce = Literal["structured_outputs", "response_format", "none"]
"""How a service is told the form of its answer: vLLM's way, OpenAI's, or not at all."""


class OpenAICompatible:
    """A model at `base_url`, which must be named, or behind this project's router at `router_address` ("host:port").

    `sampling` goes with each request; `timeout_s` is what one may take with all its attempts, without the wait for its turn.
    """

    def __init__(
        self,
        base_url: str | None = None,
        model: str | None = None,
        *,
        router_address: str | None = None,
        api_key_env: str | None = "OPENAI_API_KEY",
        timeout_s: float = 60.0,
        max_concurrency: int = 64,
        sampling: Mapping[str, Any] | None = None,
        enforce: Enforce = "structured_outputs",
        prices: Prices | None = None,
        name: str | None = None,
    ) -> None:
        if (base_url is None) == (router_address is None):
            raise ConfigError(f"a judge needs one of base_url={base_url!r:.200} and router_address={router_address!r:.200}")
        if base_url is not None and model is None:
            raise ConfigError(f"{base_url} must be told which model to ask: give model")
        self.name = name or model or str(router_address)
        self.sampling = dict(sampling or {})
        self._base_url, self._router_address, self._model, self._api_key_env = base_url, router_address, model, api_key_env
        self._timeout_s = timeout_s
        self._turns = Turns(max_concurrency)
        self._enforce = enforce
        self._prices = prices or Prices()

    async def complete(self, prompt: str, **sampling: Any) -> str:
        """Return what the model writes to one prompt, as OpenEnv's clients do."""
        reply = await self.chat([{"role": "user", "content": prompt}], **sampling)
        return texts_of(reply)[0]

    async def chat(self, messages: Messages, *, form: Mapping[str, Any] | None = None, **sampling: Any) -> ChatReply:
        """Return the reply to a conversation, held to the JSON schema `form`. Raises JudgeError where the service fails."""
        return await self._ask(messages, {} if form is None else self._enforced(form), sampling)

    async def choose(self, messages: Messages, choices: Sequence[str]) -> str:
        """Return the one of `choices` that the model wrote; JudgeError where it wrote anything else."""
        fixed = {"structured_outputs": {"choice": list(choices)}} if self._enforce == "structured_outputs" else {}
        reply = await self._ask(messages, fixed, {})
        chosen = texts_of(reply)[0].strip()
        if chosen not in choices:
            raise unusable(reply, chosen, f"it is none of {list(choices)!r:.300}")
        return chosen

    async def _ask(self, messages: Messages, fixed: Mapping[str, Any], sampling: Mapping[str, Any]) -> ChatReply:
        request = {"messages": list(messages), **self.sampling, **sampling, **fixed}
        try:
            async with self._turns.taken():
                reply = await chat_complete(
                    chat_complete_request=request,
                    base_url=self._base_url,
                    router_address=self._router_address,
                    model=self._model,
                    api_key_env=self._api_key_env,
                    timeout_s=self._timeout_s,
                )
        except RewardServerError as error:
            raise JudgeError(f"the judge {self.name} failed: {error}") from error
        record(self.name, self._used(reply))
        return reply

    def _used(self, reply: ChatReply) -> JudgeUsage:
        usage = reply.usage
        return self._prices.usage(usage.prompt_tokens, usage.completion_tokens) if usage else JudgeUsage(calls=1)

    def _enforced(self, form: Mapping[str, Any]) -> dict[str, Any]:
        if self._enforce == "structured_outputs":
            return {"structured_outputs": {"json": form}}
        if self._enforce == "response_format":
            return {
                "response_format": {"type": "json_schema", "json_schema": {"name": "verdict", "strict": True, "schema": form}}
            }
        return {}


def texts_of(reply: ChatReply) -> list[str]:
    """Return the texts of a reply's choices; JudgeError where the model wrote none."""
    texts = [choice.message.content for choice in reply.choices if choice.message.content is not None]
    if not texts:
        raise JudgeError(f"the judge {reply.model} wrote no text (finish_reason={reply.finish_reason!r}); raise max_tokens")
    return texts


def unusable(reply: ChatReply, text: str, why: str) -> JudgeError:
    """Return the error of an answer that can't be used."""
    cut = "; it was cut off: raise max_tokens" if reply.finish_reason == "length" else ""
    return JudgeError(f"the judge {reply.model} wrote {text[:1000]!r}, but {why}{cut}")

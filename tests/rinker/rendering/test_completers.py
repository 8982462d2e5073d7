"""What answers a prompt: tokens with tokens, messages with a message."""

from __future__ import annotations

import pytest

from reward_loop.errors import DataError
from reward_loop.rinker.rendering import Message, TinkerMessageCompleter, TinkerTokenCompleter, TokensWithLogprobs, get_renderer
from reward_loop.rinker.types import ModelInput, SamplingParams
from tests.rinker.rendering.chat_templates import tokenizer_of
from tests.rinker.rl.scripted import ScriptedClient


async def test_a_completer_of_tokens_answers_with_their_log_probabilities() -> None:
    client = ScriptedClient()
    answer = await TinkerTokenCompleter(client, max_tokens=5, temperature=0.5)(ModelInput.from_ints([9, 1, 2, 8]), [8])
    assert (answer.tokens, answer.logprobs, answer.stop_reason) == ([1, 2], [-1.0, -1.0], "stop")
    assert client.calls[0][1] == SamplingParams(max_tokens=5, temperature=0.5, stop=[8])


async def test_a_completer_of_messages_speaks_through_a_renderer() -> None:
    renderer = get_renderer("qwen2.5", tokenizer_of("qwen2.5"))

    async def answer(prompt: list[int], params: SamplingParams) -> list[int]:
        return [*renderer.tokenizer.encode("42"), *renderer.get_stop_sequences()]

    client = ScriptedClient(answer)
    question = [Message(role="user", content="6 * 7?")]
    assert await TinkerMessageCompleter(client, renderer)(question) == Message(role="assistant", content="42")
    [(prompt, params)] = client.calls
    assert prompt == renderer.build_generation_prompt(question).to_ints()
    assert params.stop == renderer.get_stop_sequences()


def test_log_probabilities_that_nobody_knows_are_not_made_up() -> None:
    with pytest.raises(DataError, match="no log-probabilities"):
        _ = TokensWithLogprobs([1]).logprobs

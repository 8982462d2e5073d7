"""Renderers are found by name, or by what a tokenizer's own template writes."""

from __future__ import annotations

import copy

import pytest

from recipes import tiny_models
from reward_loop.errors import ConfigError
from reward_loop.rinker.rendering import (
    LlamaRenderer,
    QwenRenderer,
    get_renderer,
    register_renderer,
    renderer_for,
    renderer_names,
)
from tests.fakes import tiny_tokenizer
from tests.rinker.rendering.chat_templates import TEMPLATES, tokenizer_of


@pytest.mark.parametrize("family", sorted(TEMPLATES))
def test_the_renderer_of_a_model_is_the_one_that_writes_what_its_template_writes(family: str) -> None:
    found, named = renderer_for(tokenizer_of(family)), get_renderer(family, tokenizer_of(family))
    question = [{"role": "user", "content": "Hi!"}]
    assert type(found) is type(named)
    assert found.build_generation_prompt(question) == named.build_generation_prompt(question)


def test_the_tiny_models_have_one_too() -> None:
    assert isinstance(renderer_for(tiny_models.tokenizer()), QwenRenderer)
    assert isinstance(renderer_for(tokenizer_of("llama3")), LlamaRenderer)


def test_a_renderer_can_be_added_once() -> None:
    def mine(tokenizer: object) -> QwenRenderer:
        return QwenRenderer(tokenizer, default_system="Say yes.")

    register_renderer("mine", mine)
    register_renderer("mine", mine)
    assert "mine" in renderer_names()
    renderer = get_renderer("mine", tokenizer_of("chatml"))
    prompt = renderer.build_generation_prompt([{"role": "user", "content": "?"}])
    assert "Say yes." in renderer.tokenizer.decode(prompt.to_ints())
    with pytest.raises(ConfigError, match="'mine' is registered already"):
        register_renderer("mine", QwenRenderer)


def test_an_unknown_name_is_answered_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"renderer='gpt' is none of chatml, .*qwen3"):
        get_renderer("gpt", tokenizer_of("chatml"))


def test_a_template_that_nobody_writes_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no chat_template"):
        renderer_for(tiny_tokenizer())
    other = copy.deepcopy(tokenizer_of("chatml"))
    other.chat_template = "{{ messages[0].content }}"
    with pytest.raises(ConfigError, match="register_renderer one that does"):
        renderer_for(other)

"""Renderers by name, and the one whose output is a tokenizer's own chat template's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from reward_loop.errors import ConfigError
from reward_loop.rinker.rendering.llama import LlamaRenderer
from reward_loop.rinker.rendering.message import Message
from reward_loop.rinker.rendering.qwen import QWEN2_SYSTEM, QWEN25_SYSTEM, Qwen3Renderer, QwenRenderer
from reward_loop.rinker.rendering.renderer import Renderer

RendererFactory: TypeAlias = Callable[[Any], Renderer]
"""Takes a tokenizer."""

_FACTORIES: dict[str, RendererFactory] = {}

_PROBES: Sequence[tuple[list[Message], bool]] = (
    ([Message(role="user", content="What is 2 + 2?")], True),
    ([Message(role="system", content="Be brief."), Message(role="user", content="Hi!")], True),
    ([Message(role="user", content="1 + 1?"), Message(role="assistant", content=" 2.\n")], False),
)
"""Conversations that tell the families apart: with and without a system message, white space in an answer."""


def register_renderer(name: str, factory: RendererFactory) -> None:
    """Make a renderer known under a name; ConfigError for one that is taken by another."""
    if _FACTORIES.setdefault(name, factory) is not factory:
        raise ConfigError(f"a renderer {name!r} is registered already; take another name")


def renderer_names() -> list[str]:
    """Return the names of all renderers."""
    return sorted(_FACTORIES)


def get_renderer(name: str, tokenizer: Any) -> Renderer:
    """Return the renderer of this name for a tokenizer of transformers."""
    if name not in _FACTORIES:
        raise ConfigError(f"renderer={name!r} is none of {', '.join(renderer_names())}; register_renderer adds one")
    return _FACTORIES[name](tokenizer)


def renderer_for(tokenizer: Any) -> Renderer:
    """Return the first registered renderer that writes exactly what the tokenizer's own chat template writes."""
    if not getattr(tokenizer, "chat_template", None):
        raise ConfigError("the tokenizer has no chat_template to choose a renderer by; name one with get_renderer")
    for factory in _FACTORIES.values():
        renderer = _made(factory, tokenizer)
        if renderer is not None and all(_agrees(renderer, *probe) for probe in _PROBES):
            return renderer
    raise ConfigError(
        f"none of {', '.join(renderer_names())} writes what this tokenizer's chat_template does; register_renderer one that does"
    )


def _made(factory: RendererFactory, tokenizer: Any) -> Renderer | None:
    try:
        return factory(tokenizer)
    except ConfigError:  # it lacks the family's control tokens
        return None


def _agrees(renderer: Renderer, messages: list[Message], generation_prompt: bool) -> bool:
    expected: list[int] = renderer.tokenizer.apply_chat_template(
        messages, tokenize=True, add_generation_prompt=generation_prompt, return_dict=False
    )
    if generation_prompt:
        return renderer.build_generation_prompt(messages).to_ints() == expected
    return renderer.build_supervised_example(messages)[0].to_ints() == expected


register_renderer("qwen3", Qwen3Renderer)
register_renderer("qwen3_disable_thinking", partial(Qwen3Renderer, thinking=False))
register_renderer("qwen2.5", partial(QwenRenderer, default_system=QWEN25_SYSTEM))
register_renderer("qwen2", partial(QwenRenderer, default_system=QWEN2_SYSTEM))
register_renderer("chatml", partial(QwenRenderer, default_system=None))
register_renderer("llama3", LlamaRenderer)
register_renderer("llama3.1", partial(LlamaRenderer, knowledge_date="December 2023"))

"""Which chat template a run writes."""

from __future__ import annotations

from typing import Any

from reward_loop.rinker.rendering import Renderer, get_renderer, renderer_for


def renderer_of(name: str | None, tokenizer: Any) -> Renderer:
    """Return the renderer of this name, or the one that writes the tokenizer's own chat template."""
    return renderer_for(tokenizer) if name is None else get_renderer(name, tokenizer)

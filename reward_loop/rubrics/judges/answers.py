"""What a tool's result means: a score, a text or an object, whichever way the tool wrote it.

Invariants: a tool that failed is an error whatever else its result holds; an answer without a finite score is a JudgeError,
never a 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from reward_loop.errors import InvalidReward, JudgeError
from reward_loop.outcome import finite
from reward_loop.rubrics.judges.tool import ToolResult

Kind = Literal["score", "text", "object"]


def answer_of(result: ToolResult, kind: Kind, who: str) -> dict[str, Any]:
    """Return a result as a mapping: with a finite "score", with a "text", or as it is. Raises JudgeError for any other."""
    if result.is_error:
        raise JudgeError(f"{who} failed: {result.text[:1000] or 'it does not say why'}")
    if kind == "text":
        return _text(result)
    found = _scored(result) if kind == "score" else _object(result)
    if found is None:
        said = f"{result.structured!r:.500}" if result.structured is not None else f"{result.text[:500]!r}"
        raise JudgeError(f"{who} gave no {kind}: {said}")
    if kind == "object":
        return found
    try:
        return {**found, "score": finite(found["score"])}
    except InvalidReward as error:
        raise JudgeError(f"{who} gave a score that can't be used: {error.message}") from None


def _scored(result: ToolResult) -> dict[str, Any] | None:
    """Return the first of these that holds a score: structured content, what it wraps as "result", the text's JSON, the text."""
    structured = result.structured
    wrapped = structured.get("result") if isinstance(structured, Mapping) else structured
    for given in (structured, wrapped, parsed(wrapped), parsed(result.text)):
        if isinstance(given, Mapping) and "score" in given:
            return dict(given)
        if isinstance(given, int | float) and not isinstance(given, bool):
            return {"score": given}
    return None


def _object(result: ToolResult) -> dict[str, Any] | None:
    if isinstance(result.structured, Mapping):
        return dict(result.structured)
    given = parsed(result.text)
    return dict(given) if isinstance(given, Mapping) else None


def _text(result: ToolResult) -> dict[str, Any]:
    """Return the text of a service model: what it gives as "text" or "result", or else all that it wrote."""
    structured = result.structured if isinstance(result.structured, Mapping) else {}
    for name in ("text", "result"):
        if isinstance(structured.get(name), str):
            return {**{key: value for key, value in structured.items() if key != "result"}, "text": structured[name]}
    return {**structured, "text": result.text}


def parsed(text: object) -> Any:
    """Return the JSON value that a text is; None for any other."""
    if not isinstance(text, str):
        return None
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return None

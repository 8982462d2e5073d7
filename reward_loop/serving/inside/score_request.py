"""The body of a POST /score, checked.

Invariant: a ScoreRequest has at least one input, none of them empty, all of one kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from reward_loop.serving.inside.pooling import POOLINGS, Pooling
from reward_loop.serving.inside.reply import bad_inputs, bad_request

MAX_INPUTS = 4096
"""Inputs of one request."""
_KNOWN = {"model", "input", "n_labels", "pooling_type", "normalize"}


@dataclass(frozen=True, slots=True)
class ScoreRequest:
    """What is to be scored: texts, or token ids that are taken as they are."""

    inputs: list[str] | list[list[int]]
    model: str | None = None
    pooling: Pooling | None = None
    n_labels: int | None = None
    normalize: bool = True


def parsed(body: Mapping[str, Any]) -> ScoreRequest:
    """Return the request in this body; raises Refusal (400, with the index of a bad input)."""
    if "input" not in body:
        raise bad_request(f"the body has {sorted(body)}, but no input; POST /score takes {sorted(_KNOWN)}")
    if unknown := sorted(body.keys() - _KNOWN):
        raise bad_request(f"unknown fields {unknown}; POST /score takes {sorted(_KNOWN)}")
    model, n_labels, normalize = body.get("model"), body.get("n_labels"), body.get("normalize")
    if model is not None and not isinstance(model, str):
        raise bad_request(f"model={model!r} must be a string")
    if n_labels is not None and (type(n_labels) is not int or n_labels < 1):
        raise bad_request(f"n_labels={n_labels!r} must be an integer of at least 1")
    if normalize is not None and not isinstance(normalize, bool):
        raise bad_request(f"normalize={normalize!r} must be true or false")
    return ScoreRequest(_inputs(body["input"]), model, _pooling(body.get("pooling_type")), n_labels, normalize is not False)


def _pooling(asked: object) -> Pooling | None:
    if asked is None:
        return None
    if not isinstance(asked, str) or asked.upper() not in POOLINGS:
        raise bad_request(f"pooling_type={asked!r} must be one of {', '.join(POOLINGS)}")
    return cast("Pooling", asked.upper())


def _inputs(given: Any) -> list[str] | list[list[int]]:
    if isinstance(given, str) or (isinstance(given, list) and given and all(type(token) is int for token in given)):
        given = [given]
    if not isinstance(given, list) or not given:
        raise bad_request("input must be a text, a list of texts, a list of token ids, or a list of such lists, and not empty")
    if len(given) > MAX_INPUTS:
        raise bad_request(f"{len(given)} inputs are more than {MAX_INPUTS}; send them in several requests")
    texts = isinstance(given[0], str)
    if why := {at: fault for at, one in enumerate(given) if (fault := _fault(one, texts=texts))}:
        raise bad_inputs(400, "bad_input", why)
    return cast("list[str] | list[list[int]]", given)


def _fault(one: object, *, texts: bool) -> str | None:
    if not (isinstance(one, str) if texts else isinstance(one, list) and all(type(token) is int for token in one)):
        return f"is not {'a text' if texts else 'a list of token ids'} as input 0 makes one expect"
    return None if one else "is empty: there is no token to score"

"""Which model a request's body names, with as little of it parsed as is safe. Pure.

Invariant: only a string under the key "model" of the outermost JSON object counts; what is not found so is None.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

_FIRST = re.compile(rb'\s*\{\s*"model"\s*:\s*"([^"\\]{1,512})"\s*[,}]')
_LAST = re.compile(rb'[,{]\s*"model"\s*:\s*"([^"\\]{1,512})"\s*\}\s*$')
_OBJECT = re.compile(rb"\s*\{")
# Inside a string the quotes would be escaped: this is a key, of this object or of one within.
_SOMEWHERE = re.compile(rb'"model"\s*:')
_TAIL_BYTES = 2048


def model_named(body: Sequence[bytes]) -> str | None:
    """Return the model that a JSON body names; None if it names none, or is not JSON."""
    text = body[0] if len(body) == 1 else b"".join(body)
    found = _FIRST.match(text) or _LAST.search(text, max(0, len(text) - _TAIL_BYTES))
    if found:
        return found[1].decode("utf-8", "replace")
    if not _OBJECT.match(text) or not _SOMEWHERE.search(text):
        return None
    try:
        model = json.loads(text).get("model")
    except (ValueError, RecursionError):
        return None
    return model if isinstance(model, str) else None

"""Results in JSON, both ways."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Hashable, Mapping
from typing import Any, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from reward_loop.errors import DataError

T = TypeVar("T")

Json = Mapping[str, Any]


def json_bytes(reply: Json) -> bytes:
    """Return a reply as bytes: every number that is not finite as a text, for JSON has none of them."""
    try:
        return json.dumps(reply, allow_nan=False).encode()
    except ValueError:
        return json.dumps(_told(reply), allow_nan=False).encode()


def reply_of(result: Any, kind: str) -> Json:
    """Return a result (a dataclass) as a reply, with its kind as the SDK calls it."""
    return {**dataclasses.asdict(result), "type": kind}


def listing_of(result: Any) -> Json:
    """Return a result (a dataclass) as a reply, with its times as ISO 8601 has them."""
    listing: Json = to_jsonable_python(result)
    return listing


def result_of(reply: bytes, kind: type[T]) -> T:
    """Return a reply as a result. Raises DataError for one that is none."""
    try:
        result: T = _reader(cast("Hashable", kind)).validate_json(reply)
        return result
    except ValidationError as error:
        raise DataError(f"the reply is no {kind.__name__}: {error.errors(include_url=False)[:3]}") from None


@functools.cache
def _reader(kind: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast("Any", kind))


def _told(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _told(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_told(item) for item in value]
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value

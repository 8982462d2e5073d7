"""The protobuf messages of the Tinker SDK, from the SDK's own package: nothing of them is kept here."""

from __future__ import annotations

from typing import Any, TypeVar

from reward_loop.errors import ConfigError, DataError

try:
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from tinker.proto import tinker_public_pb2 as messages
except ImportError as error:
    raise ConfigError(f"the wire of the Tinker SDK needs its package ({error}): pip install 'reward-loop[tinker]'") from error

__all__ = ["PROTOBUF", "messages", "parsed", "serialized"]

PROTOBUF = "application/x-protobuf"
"""The content type of a message."""

MessageT = TypeVar("MessageT")


def parsed(kind: type[MessageT], body: bytes) -> MessageT:
    """Read a message. Raises DataError for bytes that are none."""
    message: Any = kind()  # protobuf has no types of its own
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise DataError(f"{len(body)} bytes are no {kind.__name__} in protobuf: {error}") from None
    made: MessageT = message
    return made


def serialized(message: Any) -> bytes:
    """Write a message."""
    body: bytes = message.SerializeToString()
    return body

"""What is trained on, as messages: tokens in chunks, and a loss's tensors by name."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from reward_loop.errors import DataError
from reward_loop.rinker.types import Datum, EncodedTextChunk, ModelInput
from reward_loop.rinker.wire.allowance import Allowance
from reward_loop.rinker.wire.protocol import messages
from reward_loop.rinker.wire.tensors import decode_tensor, write_tensor

MOST_TOKEN = 2**31 - 1
"""No token is larger."""

_TOKEN_BYTES = 4


# By struct, not NumPy: most sequences are short, and there are many.
def encode_tokens(tokens: Sequence[int]) -> bytes:
    """Return tokens as bytes. Raises DataError for one that is no 32-bit number, or below 0."""
    try:
        raw = struct.pack(f"<{len(tokens)}i", *tokens)
    except struct.error as error:
        raise DataError(f"tokens must be numbers from 0 to {MOST_TOKEN}: {error}") from None
    if raw and (smallest := min(tokens)) < 0:
        raise DataError(f"tokens must be numbers from 0 to {MOST_TOKEN}; one is {smallest}")
    return raw


def decode_tokens(raw: bytes, what: str) -> list[int]:
    """Return bytes as tokens. Raises DataError for what can't be tokens."""
    count, rest = divmod(len(raw), _TOKEN_BYTES)
    if rest:
        raise DataError(f"{what} has {len(raw)} bytes, which is no multiple of the {_TOKEN_BYTES} that a token takes")
    tokens = list(struct.unpack(f"<{count}i", raw))
    if tokens and (smallest := min(tokens)) < 0:
        raise DataError(f"{what} holds the token {smallest}; no token is below 0")
    return tokens


def write_datum(message: messages.Datum, datum: Datum) -> None:
    """Write what is trained on to an empty message. Raises DataError for tokens that no message can hold."""
    for chunk in datum.model_input.chunks:
        message.model_input.add().encoded_text.tokens = encode_tokens(chunk.tokens)
    for name, tensor in datum.loss_fn_inputs.items():
        write_tensor(message.loss_fn_inputs[name], tensor)


def decode_datum(message: messages.Datum, what: str, allowance: Allowance) -> Datum:
    """Return a message as what is trained on; `what` names it in the DataError of a message that is wrong."""
    chunks = [_decode_chunk(chunk, what, allowance) for chunk in message.model_input]
    tensors = {
        name: decode_tensor(tensor, f"loss_fn_inputs[{name!r:.80}] of {what}", allowance)
        for name, tensor in message.loss_fn_inputs.items()
    }
    return Datum(ModelInput(chunks), tensors)


def _decode_chunk(message: messages.Chunk, what: str, allowance: Allowance) -> EncodedTextChunk:
    kind = message.WhichOneof("chunk")
    if kind != "encoded_text":
        raise DataError(f"{what} has a chunk of the kind {kind}; only encoded_text can be read")
    raw = message.encoded_text.tokens
    allowance.take(8 * len(raw), f"the input of {what}")
    return EncodedTextChunk(decode_tokens(raw, f"the input of {what}"))

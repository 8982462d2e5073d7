"""A call of `forward_backward` as a message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from reward_loop.errors import DataError
from reward_loop.rinker.learner import LossConfig
from reward_loop.rinker.types import Datum
from reward_loop.rinker.wire.allowance import Allowance
from reward_loop.rinker.wire.datums import decode_datum, write_datum
from reward_loop.rinker.wire.protocol import messages, serialized


@dataclass(frozen=True, slots=True)
class ForwardCall:
    """What is asked of a model; see `Learner.forward_backward`."""

    data: Sequence[Datum]
    loss_fn: str
    config: LossConfig | None = None
    forward_only: bool = False


def encode_forward_call(model_id: str, seq_id: int, call: ForwardCall) -> bytes:
    """Return a call as bytes. Raises DataError for tokens that no message can hold."""
    message = messages.ForwardBackwardRequest(
        model_id=model_id, seq_id=seq_id, loss_fn=call.loss_fn, forward_only=call.forward_only
    )
    for name, value in (call.config or {}).items():
        if isinstance(value, str):
            message.loss_fn_config_v2[name].text = value
        else:
            message.loss_fn_config_v2[name].number = value
    for datum in call.data:
        write_datum(message.data.add(), datum)
    return serialized(message)


def decode_forward_call(message: messages.ForwardBackwardRequest, allowance: Allowance) -> ForwardCall:
    """Return what is asked; who is asked, and when, is in the message itself. Raises DataError for what contradicts itself."""
    data = [decode_datum(datum, f"datum {index}", allowance) for index, datum in enumerate(message.data)]
    return ForwardCall(data, message.loss_fn, _config_of(message), message.forward_only)


def _config_of(message: messages.ForwardBackwardRequest) -> LossConfig | None:
    # An SDK sends numbers by both names, and texts by the second only.
    config: dict[str, float | str] = dict(message.loss_fn_config.items())
    for name, value in message.loss_fn_config_v2.items():
        kind = value.WhichOneof("value")
        if kind is None:
            raise DataError(f"loss_fn_config[{name!r:.80}] has no value; give a number or a text")
        config[name] = value.text if kind == "text" else value.number
    return config or None

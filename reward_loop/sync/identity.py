"""What a server says of itself before an update: which weights it serves, and what could carry others to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from reward_loop.errors import WeightSyncError
from reward_loop.sync.server_call import Answer


class _Runtime(BaseModel):
    """The body of GET /runtime_version."""

    model_config = ConfigDict(extra="ignore")

    version: int = Field(ge=0)
    device: Literal["cpu", "cuda"] = "cpu"
    host: str = ""
    gpus: tuple[str, ...] = ()
    sync: bool = False
    busy: str | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """One server; `stock` if it is a vLLM without the reward loop's plugin, of which nothing else is known."""

    server: str
    stock: bool = False
    version: int = 0
    device: Literal["cpu", "cuda"] = "cpu"
    host: str = ""
    """Which machine it is on, and which shared memory it sees."""
    gpus: tuple[str, ...] = ()
    sync: bool = False
    """Whether it takes updates."""
    busy: str | None = None
    """What it is about, where it is another update."""


def identity_of(answer: Answer) -> Identity:
    """Return what a server's answer to GET /runtime_version says of it; raises WeightSyncError where it has no good answer."""
    if answer.status == 404:
        return Identity(answer.server, stock=True)
    if not answer.good:
        raise WeightSyncError(str(answer))
    try:
        runtime = _Runtime.model_validate(answer.body)
    except ValidationError as error:
        why = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise WeightSyncError(f"{answer.server} says of itself what no reward server does: {why}") from None
    return Identity(answer.server, **runtime.model_dump())


def kind_of(identities: Sequence[Identity]) -> Literal["ours", "stock"]:
    """Return what kind of servers these are; raises WeightSyncError for a mixture, and for servers that take no updates."""
    stock = [each.server for each in identities if each.stock]
    if stock and len(stock) < len(identities):
        raise WeightSyncError(
            f"{', '.join(stock)} is a vLLM without the reward loop's plugin, and others have it: they can't change together; "
            "install reward-loop beside each vLLM, or publish to them apart"
        )
    if closed := [each.server for each in identities if not each.stock and not each.sync]:
        raise WeightSyncError(
            f"{', '.join(closed)} takes no updates of the reward loop: its engine was started with another "
            '--weight-transfer-config; leave that out, or set {"backend": "reward_loop"}'
        )
    return "stock" if stock else "ours"


def next_version(served: Mapping[str, int], asked: int | None, *, partial: bool) -> int:
    """Return the version of an update: what was `asked` for, or the one after the highest that a server has `served`.

    Raises WeightSyncError for what is no version, and for a `partial` update of servers whose versions differ.
    """
    if asked is not None and (isinstance(asked, bool) or asked < 0):
        raise WeightSyncError(f"version={asked!r} must be a whole number from 0, or None for the next one")
    if partial and len(set(served.values())) > 1:
        each = ", ".join(f"{server} {version}" for server, version in served.items())
        raise WeightSyncError(
            f"a part of the weights can't be published to servers of different versions ({each}): they would stay different; "
            "publish everything once (training_mode=full)"
        )
    return max(served.values()) + 1 if asked is None else asked

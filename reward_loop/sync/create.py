"""Making a publisher for whatever a trainer has: a client, a manager of reward models, or addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, overload, runtime_checkable

import torch
from pydantic import ValidationError
from torch import distributed

from reward_loop.config_sync import SyncConfig
from reward_loop.errors import ConfigError
from reward_loop.sync.control_plane import ControlPlane
from reward_loop.sync.key_names import HEADS, is_head, normalised
from reward_loop.sync.materialize import full_tensors
from reward_loop.sync.planes.plane import TensorCommunicator
from reward_loop.sync.publisher import RewardModelPublisher
from reward_loop.sync.report import PublishReport
from reward_loop.sync.server_call import Access
from reward_loop.sync.servers import KnownServers, Servers, ServersBehind, url_of
from reward_loop.sync.training_mode import RewardModelTrainingMode


@runtime_checkable
class HasServers(Protocol):
    """Something that knows the servers of a model, such as a `RewardModelManager`."""

    def servers_of(self, model: str | None = None) -> Servers:
        """Return the servers of the model of this name; None where there is one model."""
        ...


@runtime_checkable
class HasAddress(Protocol):
    """Something that asks one address, such as a `VLLMRewardClient`."""

    @property
    def base_url(self) -> object:
        """The address; its text is a URL."""
        ...

    @property
    def model_name(self) -> str | None:
        """The model that is asked for."""
        ...

    @property
    def api_key_env(self) -> str | None:
        """The environment variable that holds the key."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Further headers."""
        ...


class Rank0OnlyPublisher:
    """Publishes from rank 0 of a job of several processes (torch.distributed); the others bring their shards.

    Every rank must call `publish`, with the same names.
    """

    def __init__(self, publisher: RewardModelPublisher, head_name_patterns: Sequence[str] | None = None) -> None:
        self._publisher = publisher
        self._heads = HEADS if head_name_patterns is None else head_name_patterns

    def publish(
        self,
        state_dict: Mapping[str, torch.Tensor],
        version: int | None = None,
        *,
        training_mode: RewardModelTrainingMode | str = RewardModelTrainingMode.FULL,
    ) -> PublishReport | None:
        """Do as `RewardModelPublisher.publish` on rank 0; on the others return None as soon as their shards were taken."""
        if RewardModelTrainingMode(training_mode) is RewardModelTrainingMode.HEAD_ONLY:
            state_dict = self._head(state_dict)
        whole = full_tensors(state_dict, rank0_only=True)
        if distributed.is_available() and distributed.is_initialized() and distributed.get_rank() != 0:
            return None
        return self._publisher.publish(whole, version, training_mode=training_mode)

    def _head(self, state_dict: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Return the weights of the head, so that no other shard is gathered; everything where none is found."""
        heads = {name for name, served in normalised(state_dict, heads=self._heads).items() if is_head(served, self._heads)}
        return {name: value for name, value in state_dict.items() if name in heads} or state_dict


Client = HasServers | HasAddress | Sequence[str] | str


@overload
def create_reward_publisher(
    client: Client,
    *,
    head_name_patterns: Sequence[str] | None = None,
    rank0_only: Literal[False] = False,
    **options: Any,
) -> RewardModelPublisher: ...
@overload
def create_reward_publisher(
    client: Client,
    *,
    head_name_patterns: Sequence[str] | None = None,
    rank0_only: Literal[True],
    **options: Any,
) -> Rank0OnlyPublisher: ...
def create_reward_publisher(
    client: Client,
    *,
    head_name_patterns: Sequence[str] | None = None,
    rank0_only: bool = False,
    comm: TensorCommunicator | None = None,
    servers: Sequence[str] | None = None,
    model: str | None = None,
    token_env: str | None = None,
    admin_token_env: str | None = None,
    strict: bool = False,
    generative: bool = False,
    key_filter: Callable[[str], bool] | None = None,
    host: str | None = None,
    port: int = 0,
    checkpoint: str | None = None,
    settings: SyncConfig | None = None,
    **changes: Any,
) -> RewardModelPublisher | Rank0OnlyPublisher:
    """Return a publisher to every server of a model.

    `client` is a `VLLMRewardClient` at a server or at a router, a `RewardModelManager` (its servers are kept awake meanwhile), or
    the addresses of servers. A router is asked for its servers, with the token of its /admin in `admin_token_env`, unless
    `servers` says them. `model` chooses one of several; `token_env` is the environment variable with the token that the servers
    want, where that is not the client's. `rank0_only`: for a job of several processes. `settings` are those of
    `reward_model.sync`, and `changes` such as plane="gloo" or timeout_s=60 go before them; all else is as for
    `RewardModelPublisher`.

    Raises ConfigError for what can't be.
    """
    publisher = RewardModelPublisher(
        ControlPlane(_servers(client, servers, model, token_env, admin_token_env)),
        comm,
        head_name_patterns=head_name_patterns,
        settings=changed(settings or SyncConfig(), changes),
        strict=strict,
        generative=generative,
        key_filter=key_filter,
        host=host,
        port=port,
        checkpoint=checkpoint,
    )
    return Rank0OnlyPublisher(publisher, head_name_patterns) if rank0_only else publisher


def changed(settings: SyncConfig, changes: Mapping[str, Any]) -> SyncConfig:
    """Return these settings with some of them changed; ConfigError for unknown ones and wrong values."""
    try:
        return SyncConfig.model_validate({**settings.model_dump(), **changes})
    except ValidationError as error:
        known = ", ".join(SyncConfig.model_fields)
        why = "; ".join(f"{'.'.join(map(str, each['loc']))}={each['input']!r:.100}: {each['msg']}" for each in error.errors())
        raise ConfigError(f"a publisher can't be made with {why}; its settings are {known}") from None


def _servers(
    client: Client, servers: Sequence[str] | None, model: str | None, token_env: str | None, admin_token_env: str | None
) -> Servers:
    if isinstance(client, HasServers) and servers is None:
        return client.servers_of(model)
    if isinstance(client, HasAddress):
        access = Access(token_env or client.api_key_env, client.headers)
        if servers is None:
            return ServersBehind(url_of(str(client.base_url)), model or client.model_name, access, Access(admin_token_env))
        return KnownServers.at(servers, access)
    if servers is not None:
        return KnownServers.at(servers, Access(token_env))
    if isinstance(client, str | Sequence):
        return KnownServers.at([client] if isinstance(client, str) else client, Access(token_env))
    raise ConfigError(f"a publisher is made for a client, a manager or addresses; this is a {type(client).__name__}")

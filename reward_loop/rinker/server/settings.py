"""The settings of the server."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, SecretStr

from reward_loop.config_base import Config, Count

Seconds = Annotated[float, Field(gt=0)]

KEY_PREFIX = "tml-"
"""What every API key begins with: the official client refuses others."""


class ServerSettings(Config):
    """Where the server listens, whom it serves, and how much of everything."""

    host: str = "127.0.0.1"
    """Address to listen on; one that other machines can reach needs an `api_key`."""
    port: Annotated[int, Field(ge=0, lt=1 << 16)] = 8765
    """Port to listen on; 0 takes any that is free."""
    api_key: SecretStr | None = None
    """What clients must send as X-API-Key; null: any key that begins with tml-."""
    max_body_mb: Count = 64
    """MiB of one request's body, packed and unpacked."""
    max_unpacked_mb: Count = 1024
    """MiB of memory that the tensors and tokens of one request may take: sparse tensors are small until they are unpacked."""
    max_sessions: Count = 64
    """Sessions (client processes) at a time; more are told to come later."""
    max_models: Count = 16
    """Models in training at a time; more are refused."""
    max_pending: Count = 20_000
    """Requests that wait or run at a time; more are told to come later."""
    max_samples: Count = 4096
    """Sequences that one request may ask for."""
    poll_s: Annotated[float, Field(gt=0, lt=45)] = 30.0
    """Seconds for which a request for a result waits for it; the official client hangs up after 45."""
    result_ttl_s: Seconds = 3600.0
    """Seconds for which a result is kept that nobody has fetched."""
    fetched_ttl_s: Seconds = 60.0
    """Seconds for which a result is kept that was fetched: its client may not have got it."""
    max_results: Count = 100_000
    """Results that are kept; beyond that the oldest go, those that were fetched first."""
    max_results_mb: Count = 1024
    """MiB of results that are kept, likewise."""
    inline_result_mb: Count = 1
    """MiB up to which a result is sent at once to a client that can take its size first."""
    session_timeout_s: Seconds | None = 300.0
    """Seconds without a sign of life after which a session is ended and its models are unloaded; null: never."""
    compress: bool = False
    """Clients send what they train on in zstd, and get large results so: worth it where the network is slow."""
    max_chunk_datums: Count = 1024
    """Datums in one request of a client; it splits larger calls."""
    max_chunk_bytes: Count = 5_000_000
    """Bytes in one request of a client, before they are compressed; it splits larger calls."""

"""Where a service is and which key it wants.

Invariant: the key is read when it is needed and lives in no object that is kept; it never appears in an error.
"""

from __future__ import annotations

import os

from yarl import URL

from reward_loop.errors import ConfigError
from reward_loop.limits.address import is_loopback

_PATH = "chat/completions"


def chat_url(base_url: str | None, reward_router_address: str | None) -> URL:
    """Return the URL of chat completions at a base URL (a bare host means its /v1), or behind the reward router ("host:port")."""
    if (base_url is None) == (reward_router_address is None):
        raise ConfigError(f"pass one of base_url={base_url!r:.200} and reward_router_address={reward_router_address!r:.200}")
    url = service_url(f"http://{reward_router_address}" if base_url is None else base_url)
    path = url.path.rstrip("/").removesuffix(f"/{_PATH}") or "/v1"
    return url.with_path(f"{path}/{_PATH}")


def service_url(base_url: str) -> URL:
    """Return a base URL as it was given, if requests can go there; ConfigError for one that holds a user, a key or a query."""
    try:
        url = URL(base_url)
    except ValueError as error:
        raise ConfigError(f"no service has the address {base_url!r:.200}: {error}") from None
    if url.user is not None or url.password is not None:
        raise ConfigError(f"a URL must not hold a user or a key ({url.host}); put the key into an environment variable")
    if url.scheme not in ("http", "https") or not url.host or url.query_string or url.fragment:
        raise ConfigError(f"base_url must be http(s)://host[:port][/path]; it is {base_url!r:.200}")
    return url


def api_key(variable: str | None, url: URL) -> str | None:
    """Return the key in an environment variable; None where no variable is named, or it is not set and the service is local."""
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        if is_loopback(url.host or ""):
            return None
        raise ConfigError(f"{url.host} wants an API key: set the environment variable {variable}, or pass api_key_env=None")
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"the environment variable {variable} holds characters that no API key has; set it again")
    return key

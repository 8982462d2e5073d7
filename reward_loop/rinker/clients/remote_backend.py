"""A service that is reached by HTTP."""

from __future__ import annotations

import os

from reward_loop.rinker.backend import Backend
from reward_loop.rinker.remote.http_backend import HttpBackend
from reward_loop.rinker.remote.settings import HttpSettings


def remote_backend(base_url: str, api_key: str | None, settings: HttpSettings | None = None) -> Backend:
    """Reach the service at `base_url`; the key is `api_key`, or else TINKER_API_KEY."""
    return HttpBackend(base_url, api_key or os.environ.get("TINKER_API_KEY"), settings)

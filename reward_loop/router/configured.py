"""From `reward_model.router` to the settings of the process, where a token is a value and no variable's name."""

from __future__ import annotations

import os

from reward_loop.config_serving import RouterConfig
from reward_loop.errors import ConfigError
from reward_loop.router.settings import RouterSettings

_TOKENS = ("token", "admin_token", "server_token")


def router_settings(config: RouterConfig, default_model: str | None = None) -> RouterSettings:
    """Return the settings that a configuration asks for; ConfigError for a variable that holds no token.

    `default_model` gets the requests that name none, where several models are served.
    """
    values = {name: value for name, value in config.model_dump().items() if not name.endswith("_env")}
    values |= {name: _token(f"{name}_env", getattr(config, f"{name}_env")) for name in _TOKENS}
    return RouterSettings(**values, default_model=default_model)


def _token(setting: str, variable: str | None) -> str | None:
    if variable is None:
        return None
    token = os.environ.get(variable, "").strip()
    if not (token and token.isascii() and token.isprintable() and " " not in token):
        wrong = "holds characters that no token has" if token else "is not set, or empty"
        raise ConfigError(f"reward_model.router.{setting}={variable}: this environment variable {wrong}; set it to the token")
    return token

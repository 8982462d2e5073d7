"""The settings of the process are those of the configuration, with tokens in place of their variables."""

from __future__ import annotations

from dataclasses import fields

import pytest

from reward_loop.config_serving import RouterConfig
from reward_loop.errors import ConfigError
from reward_loop.router.configured import router_settings
from reward_loop.router.settings import RouterSettings


def test_the_defaults_are_the_same_on_both_sides() -> None:
    assert router_settings(RouterConfig()) == RouterSettings()


def test_every_setting_arrives() -> None:
    names = {name for name in RouterConfig.model_fields if not name.endswith("_env")}
    assert names <= {field.name for field in fields(RouterSettings)}
    config = RouterConfig(policy="round_robin", retries=7, hedge_quantile=0.9, host="::1", max_in_flight=3)
    assert router_settings(config, "rm") == RouterSettings(
        policy="round_robin", retries=7, hedge_quantile=0.9, host="::1", max_in_flight=3, default_model="rm"
    )


def test_tokens_are_read_from_their_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOR_CLIENTS", "one")
    monkeypatch.setenv("FOR_SERVERS", " two\n")
    settings = router_settings(RouterConfig(token_env="FOR_CLIENTS", server_token_env="FOR_SERVERS"))
    assert (settings.token, settings.server_token, settings.admin_token) == ("one", "two", None)


@pytest.mark.parametrize("value", [None, "", "  ", "tökén", "two words", "a\tb"])
def test_a_variable_without_a_token_is_an_error_that_does_not_tell_the_value(
    monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("FOR_ADMIN", raising=False)
    if value is not None:
        monkeypatch.setenv("FOR_ADMIN", value)
    with pytest.raises(ConfigError, match=r"reward_model\.router\.admin_token_env=FOR_ADMIN") as error:
        router_settings(RouterConfig(admin_token_env="FOR_ADMIN"))
    assert not value or not value.strip() or value not in str(error.value)

"""Where a service is, and which key it gets."""

from __future__ import annotations

import pytest
from yarl import URL

from reward_loop.errors import ConfigError
from reward_loop.scoring.endpoint import api_key, chat_url


@pytest.mark.parametrize(
    ("base_url", "url"),
    [
        ("http://judge:8000", "http://judge:8000/v1/chat/completions"),
        ("http://judge:8000/", "http://judge:8000/v1/chat/completions"),
        ("http://judge:8000/v1", "http://judge:8000/v1/chat/completions"),
        ("http://judge:8000/v1/", "http://judge:8000/v1/chat/completions"),
        ("https://api.example.com/v1/chat/completions", "https://api.example.com/v1/chat/completions"),
        ("https://api.example.com/v1beta/openai/", "https://api.example.com/v1beta/openai/chat/completions"),
    ],
)
def test_a_base_url_may_come_with_or_without_its_version(base_url: str, url: str) -> None:
    assert str(chat_url(base_url, None)) == url


def test_the_router_has_an_address_without_a_scheme() -> None:
    assert str(chat_url(None, "127.0.0.1:9000")) == "http://127.0.0.1:9000/v1/chat/completions"


@pytest.mark.parametrize(
    "base_url", ["", "judge", "judge:8000", "ftp://judge", "http://", "http://judge/v1?key=1", "http://judge:99999"]
)
def test_what_is_no_address_of_a_service_is_refused(base_url: str) -> None:
    with pytest.raises(ConfigError, match=r"base_url must be|no service has"):
        chat_url(base_url, None)


def test_a_url_with_a_key_in_it_is_refused_without_repeating_it() -> None:
    with pytest.raises(ConfigError, match="environment variable") as raised:
        chat_url("https://user:hunter2@judge/v1", None)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("both", [("http://judge", "judge:1"), (None, None)])
def test_there_is_one_address(both: tuple[str | None, str | None]) -> None:
    with pytest.raises(ConfigError, match="pass one of base_url="):
        chat_url(*both)


def test_a_key_is_read_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", "one")
    assert api_key("JUDGE_KEY", URL("http://judge")) == "one"
    monkeypatch.setenv("JUDGE_KEY", " two\n")
    assert api_key("JUDGE_KEY", URL("http://judge")) == "two"
    assert api_key(None, URL("http://judge")) is None


def test_a_missing_key_is_an_error_unless_the_service_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JUDGE_KEY", raising=False)
    assert api_key("JUDGE_KEY", URL("http://127.0.0.1:8000")) is None
    with pytest.raises(ConfigError, match=r"judge\.example wants an API key: set the environment variable JUDGE_KEY"):
        api_key("JUDGE_KEY", URL("https://judge.example/v1"))


@pytest.mark.parametrize("key", ["two\r\nX-Evil: 1", "schlüssel-12345"])
def test_a_key_that_is_none_is_refused_without_repeating_it(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("JUDGE_KEY", key)
    with pytest.raises(ConfigError, match="JUDGE_KEY holds characters") as raised:
        api_key("JUDGE_KEY", URL("https://judge"))
    assert key not in str(raised.value)

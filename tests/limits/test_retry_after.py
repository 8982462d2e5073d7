"""What a 429 says, whichever client it came through."""

from __future__ import annotations

import urllib.error
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import Message
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from reward_loop.errors import RequestRejected, ServerUnavailable, TooManyRequests
from reward_loop.limits.retry_after import Throttled, retry_after_s, throttled

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        (" 1.5 ", 1.5),
        ("0", 0.0),
        ("Fri, 02 Jan 2026 03:04:35 GMT", 30.0),
        ("Fri, 02 Jan 2026 03:04:35", 30.0),
        ("Fri, 02 Jan 2026 03:00:00 GMT", 0.0),
    ],
)
def test_seconds_and_dates_are_understood(value: str, seconds: float) -> None:
    assert retry_after_s({"retry-after": value}, NOW) == seconds


@pytest.mark.parametrize("value", ["", "soon", "-1", "nan", "inf", "1e999", "Fri, 99 Jan 2026 03:04:35 GMT"])
def test_what_cannot_be_read_was_not_said(value: str) -> None:
    assert retry_after_s(CIMultiDict({"Retry-After": value}), NOW) is None


@pytest.mark.parametrize("headers", [None, {}, 7, {"Content-Type": "text/plain"}])
def test_without_the_header_nothing_was_said(headers: object) -> None:
    assert retry_after_s(headers, NOW) is None


@given(st.text())
def test_no_header_is_an_error(value: str) -> None:
    seconds = retry_after_s({"Retry-After": value}, NOW)
    assert seconds is None or seconds >= 0


@dataclass
class Response:
    """A response as httpx and requests attach it to their errors."""

    status_code: int
    headers: dict[str, str] = field(default_factory=dict)


class ClientError(Exception):
    """An error with whatever attributes its client gives it."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__("an error")
        self.__dict__.update(attributes)


def url_error() -> urllib.error.HTTPError:
    headers = Message()
    headers["Retry-After"] = "3"
    return urllib.error.HTTPError("http://judge", 429, "Too Many Requests", headers, None)


@pytest.mark.parametrize(
    "error",
    [
        TooManyRequests("slow down", retry_after_s=3.0),
        ClientError(status=429, headers=CIMultiDict({"Retry-After": "3"})),  # aiohttp
        ClientError(response=Response(429, {"retry-after": "3"})),  # httpx, requests
        ClientError(status_code=429, code="rate_limit_exceeded", response=Response(429, {"retry-after": "3"})),  # openai
        url_error(),
    ],
    ids=["ours", "aiohttp", "httpx", "openai", "urllib"],
)
def test_a_429_of_every_client_is_recognised(error: Exception) -> None:
    assert throttled(error) == Throttled(3.0)


def test_a_429_may_say_nothing_more() -> None:
    assert throttled(ClientError(status=429, headers=None)) == Throttled(None)


@pytest.mark.parametrize(
    "error",
    [ValueError("429"), ClientError(status=503), ClientError(code="429"), RequestRejected("no", 400), ServerUnavailable("500")],
)
def test_other_errors_are_no_429(error: Exception) -> None:
    assert throttled(error) is None

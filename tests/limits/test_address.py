"""Addresses of services."""

from __future__ import annotations

import pytest

from reward_loop.errors import ConfigError
from reward_loop.limits.address import is_loopback, split_address


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:65535", ("::1", 65535)),
        ("judge-1.example:7077", ("judge-1.example", 7077)),
    ],
)
def test_an_address_is_a_host_and_a_port(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize(
    "address", ["", "host", "host:", ":80", "host:0", "host:65536", "host:-1", "host:٣", "http://host:80", "a..b:1"]
)
def test_anything_else_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=r"must be host:port.*it is ") as raised:
        split_address(address)
    assert repr(address) in str(raised.value)


def test_loopback_is_known_by_its_name_and_its_addresses() -> None:
    assert all(map(is_loopback, ("localhost", "127.0.0.1", "127.8.9.10", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "10.0.0.1", "example.com", "::", "")))

"""Addresses of services: how they are written, and which stay on this machine."""

from __future__ import annotations

import ipaddress
import re

from reward_loop.errors import ConfigError

_HOST = re.compile(r"[A-Za-z0-9_:%-]+(\.[A-Za-z0-9_-]+)*\.?")


def split_address(address: str) -> tuple[str, int]:
    """Return host and port of "host:port" or "[::1]:port"; ConfigError for anything else."""
    host, separator, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not separator or not _HOST.fullmatch(host) or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65_536:
        raise ConfigError(f"the address of a shared limit must be host:port, e.g. 127.0.0.1:7077; it is {address!r}")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether a host name or address can be reached from its own machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

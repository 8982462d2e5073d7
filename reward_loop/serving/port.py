"""A port of this machine that belongs to one server for as long as it is wanted, also while the server restarts.

Invariant: a socket is bound to the port and never listens. It keeps the system from giving the port to anybody else, and does
not keep a server from binding it: on Linux sockets with SO_REUSEADDR share a port at which only one of them listens.
"""

from __future__ import annotations

import socket

from reward_loop.errors import RewardServerError


class ReservedPort:
    """The port; `number` 0 for one that the system chooses. RewardServerError if it is taken."""

    def __init__(self, host: str, number: int = 0) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((host, number))
        except OSError as error:
            self._socket.close()
            raise RewardServerError(
                f"no server can listen at {host} port {number}: {error.strerror}; "
                "give it port 0 for a free one, and set server.host to an address of this machine"
            ) from error
        self.number: int = self._socket.getsockname()[1]
        self._host = host

    @property
    def address(self) -> str:
        """`host:port` as a URL has it, IPv6 in brackets."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self.number}"

    def release(self) -> None:
        """Give it back."""
        self._socket.close()

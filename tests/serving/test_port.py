"""A reserved port: a server can listen there again and again, and nobody else is given it."""

from __future__ import annotations

import socket

import pytest

from reward_loop.errors import RewardServerError
from reward_loop.serving.port import ReservedPort


def listener(port: int) -> socket.socket:
    """What a server does."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen()
    return server


def test_a_server_can_listen_there_twice_in_turn() -> None:
    port = ReservedPort("127.0.0.1")
    for _ in range(2):
        with listener(port.number), socket.create_connection(("127.0.0.1", port.number), timeout=5):
            pass
    port.release()


def test_nobody_can_connect_while_no_server_listens() -> None:
    port = ReservedPort("127.0.0.1")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port.number), timeout=5)
    port.release()


def test_the_system_gives_it_to_nobody_else() -> None:
    port = ReservedPort("127.0.0.1")
    others = [ReservedPort("127.0.0.1") for _ in range(200)]
    assert port.number not in [other.number for other in others]
    for other in [port, *others]:
        other.release()


def test_a_port_at_which_somebody_listens_is_refused_by_name() -> None:
    with listener(0) as taken:
        number = taken.getsockname()[1]
        with pytest.raises(RewardServerError, match=f"port {number}: Address already in use; give it port 0"):
            ReservedPort("127.0.0.1", number)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(RewardServerError, match=r"192\.0\.2\.1 port 0.*set server\.host"):
        ReservedPort("192.0.2.1")


def test_an_ipv6_address_has_brackets() -> None:
    port = ReservedPort("::1")
    assert port.address == f"[::1]:{port.number}"
    port.release()

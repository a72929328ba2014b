"""A connection is deaf while it has much to take, or much is promised to it."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from weft.proto import wire, zmtp
from weft.server.address import Address
from weft.server.direct_edge import DirectEdge
from weft.server.edge import Caller
from weft.server.hearing import HEARS_BYTES_MAX, Hearing


@pytest.fixture
def edge() -> Iterator[DirectEdge]:
    made = DirectEdge(Address("127.0.0.1", 0))
    yield made
    made.close()


@pytest.fixture
def client(edge: DirectEdge) -> Iterator[socket.socket]:
    """The first connection, which sends nothing after READY."""
    with socket.create_connection(("127.0.0.1", edge.address.port)) as made:
        made.sendall(zmtp.GREETING + zmtp.ready(b"DEALER"))
        while not edge._by_number or not edge._by_number[1].welcome:
            edge.receive()
        yield made


@pytest.mark.usefixtures("client")
def test_what_is_promised_counts_until_it_is_told(edge: DirectEdge) -> None:
    hearing = Hearing(edge)
    first, second, other = Caller(1, 1), Caller(1, 2), Caller(2, 1)
    hearing.tell(first, HEARS_BYTES_MAX - 1)
    assert hearing.deaf(second) is None
    hearing.tell(second, 1)
    assert hearing.deaf(second) == 1
    assert hearing.deaf(other) is None
    assert hearing.deaf(7) is None, "a caller inside the node"
    hearing.told(first)
    assert hearing.hears(1)
    hearing.told(second)
    hearing.told(second)
    assert not hearing._to_come


def test_who_asks_twice_is_promised_both(edge: DirectEdge) -> None:
    hearing = Hearing(edge)
    hearing.tell(Caller(1, 1), HEARS_BYTES_MAX)
    hearing.tell(Caller(1, 1), 5)
    hearing.told(Caller(1, 1))
    hearing.told(Caller(1, 1))
    assert not hearing._to_come


@pytest.mark.usefixtures("client")
def test_who_does_not_take_what_is_sent_is_deaf_until_it_has_gone(edge: DirectEdge) -> None:
    hearing = Hearing(edge)
    sends = 0
    while hearing.hears(1):
        assert edge.send(Caller(1, sends), wire.Popped([]), [bytes(1 << 20)])
        sends += 1
        assert sends < 100
    assert hearing.deaf(Caller(1, 1)) == 1
    edge._drop(edge._by_number[1], "the test says so")
    assert hearing.deaf(Caller(1, 1)) is None

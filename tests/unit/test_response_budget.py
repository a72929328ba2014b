"""Response budget: backpressure applies while a connection has many unsent or promised bytes."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from weft.proto import wire
from weft.server.address import Address
from weft.server.edges.edge import EdgeCaller
from weft.server.edges.response_budget import HEARS_BYTES_MAX, ResponseBudget
from weft.server.edges.zmtp_edge import ZmtpEdge
from weft.transport import zmtp


@pytest.fixture
def edge() -> Iterator[ZmtpEdge]:
    made = ZmtpEdge(Address("127.0.0.1", 0))
    yield made
    made.close()


@pytest.fixture
def client(edge: ZmtpEdge) -> Iterator[socket.socket]:
    """The first connection, which sends nothing after READY."""
    with socket.create_connection(("127.0.0.1", edge.address.port)) as made:
        made.sendall(zmtp.GREETING + zmtp.ready(b"DEALER"))
        while not edge._by_number or not edge._by_number[1].welcome:
            edge.receive()
        yield made


@pytest.mark.usefixtures("client")
def test_what_is_promised_counts_until_it_is_told(edge: ZmtpEdge) -> None:
    response_budget = ResponseBudget(edge)
    first, second, other = EdgeCaller(1, 1), EdgeCaller(1, 2), EdgeCaller(2, 1)
    response_budget.tell(first, HEARS_BYTES_MAX - 1)
    assert response_budget.blocked_peer(second) is None
    response_budget.tell(second, 1)
    assert response_budget.blocked_peer(second) == 1
    assert response_budget.blocked_peer(other) is None
    assert response_budget.blocked_peer(7) is None, "a caller of another thread"
    response_budget.told(first)
    assert response_budget.hears(1)
    response_budget.told(second)
    response_budget.told(second)
    assert not response_budget._to_come


def test_who_asks_twice_is_promised_both(edge: ZmtpEdge) -> None:
    response_budget = ResponseBudget(edge)
    response_budget.tell(EdgeCaller(1, 1), HEARS_BYTES_MAX)
    response_budget.tell(EdgeCaller(1, 1), 5)
    response_budget.told(EdgeCaller(1, 1))
    response_budget.told(EdgeCaller(1, 1))
    assert not response_budget._to_come


@pytest.mark.usefixtures("client")
def test_who_does_not_take_what_is_sent_is_deaf_until_it_has_gone(edge: ZmtpEdge) -> None:
    response_budget = ResponseBudget(edge)
    sends = 0
    while response_budget.hears(1):
        assert edge.send(EdgeCaller(1, sends), wire.Popped([]), [bytes(1 << 20)])
        sends += 1
        assert sends < 100
    assert response_budget.blocked_peer(EdgeCaller(1, 1)) == 1
    edge.drop(edge._by_number[1], "the test says so")
    assert response_budget.blocked_peer(EdgeCaller(1, 1)) is None

"""Connections that the ZMTP edge refuses, and the listener that accepts the others."""

from __future__ import annotations

import os
import resource
import select
import socket
import time

import pytest
import zmq

from tests.contract.edge_rig import HANDSHAKE, PATIENCE_S, EdgeRig, asked, rids
from weft.errors import Unavailable
from weft.server.address import Address
from weft.server.edges import socket_edge as room
from weft.server.edges import tcp_listener
from weft.server.edges.edge import FRAME_BYTES_MAX
from weft.server.edges.zmtp_edge import ZmtpEdge
from weft.transport import zmtp


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x00" * 64,
        zmtp.GREETING.replace(b"NULL\0", b"CURVE"),
        zmtp.GREETING[:10] + b"\x01" + zmtp.GREETING[11:],
        zmtp.GREETING + zmtp.ready(b"SUB"),
        zmtp.GREETING + b"\x04\x06\x05READY",
        zmtp.GREETING + b"\x04\x08\x05ERROR\x01x",
        zmtp.GREETING + asked(1),
        HANDSHAKE + b"\x09\x00",
        HANDSHAKE + b"\x02" + (FRAME_BYTES_MAX + 1).to_bytes(8, "big"),
        HANDSHAKE + b"\x02" + b"\xff" * 8,
    ],
    ids=[
        "http", "zeros", "curve", "zmtp 2", "sub", "no kind", "error", "before ready", "flags",
        "oversized", "huge",
    ],
)  # fmt: skip
def test_garbage_ends_its_connection_and_no_other(edge_rig: EdgeRig, said: bytes) -> None:
    other = edge_rig.raw()
    raw = edge_rig.raw(b"")
    raw.socket.sendall(said)
    assert edge_rig.until(raw.gone) == []
    other.ask(9)
    assert rids(edge_rig.take(1)) == [9]
    assert edge_rig.open == 1


def test_a_curve_client_of_the_library_gets_no_further(edge_rig: EdgeRig) -> None:
    context = zmq.Context()
    try:
        dealer = context.socket(zmq.DEALER)
        dealer.curve_publickey, dealer.curve_secretkey = zmq.curve_keypair()
        dealer.curve_serverkey = zmq.curve_keypair()[0]
        dealer.connect(f"tcp://{edge_rig.edge.address}")
        dealer.send(b"secret")
        edge_rig.until(lambda: edge_rig.edge._number > 0 and edge_rig.open == 0)
        other = edge_rig.raw()
        other.ask(3)
        assert rids(edge_rig.take(1)) == [3]
    finally:
        context.destroy(0)


def test_who_does_not_shake_hands_is_closed(
    edge_rig: EdgeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent, half, whole = edge_rig.raw(b""), edge_rig.raw(zmtp.GREETING[:20]), edge_rig.raw()
    edge_rig.until(lambda: edge_rig.open == 3)
    edge_rig.edge.tend()
    assert edge_rig.open == 3
    monkeypatch.setattr(room, "HANDSHAKE_MS", 0)
    edge_rig.edge.tend()
    edge_rig.until(lambda: silent.gone() and half.gone())
    assert edge_rig.open == 1
    whole.ask(1)
    assert rids(edge_rig.take(1)) == [1]


def test_connections_past_the_limit_are_closed_at_once() -> None:
    edge_rig = EdgeRig(connections_max=2)
    try:
        first, _ = edge_rig.raw(), edge_rig.raw()
        third = edge_rig.raw(b"")
        edge_rig.until(third.gone)
        assert (edge_rig.open, edge_rig.edge.refused) == (2, 1)
        first.socket.close()
        edge_rig.until(lambda: edge_rig.open == 1)
        edge_rig.raw().ask(4)
        assert rids(edge_rig.take(1)) == [4]
    finally:
        edge_rig.close()


def test_without_descriptors_those_that_knock_wait(edge_rig: EdgeRig) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as knocking:
        knocking.settimeout(PATIENCE_S)
        used = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            assert used > 3
            knocking.connect(edge_rig.edge.address)
            assert edge_rig.edge.receive() == []
            ready = (
                select.select([edge_rig.edge._epoll], [], [], 0.05) if used < 1000 else ([], [], [])
            )
            assert ready[0] == [], "it would spin"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert edge_rig.open == 0
        edge_rig.edge.tend()
        knocking.sendall(HANDSHAKE + asked(1))
        assert rids(edge_rig.take(1)) == [1]


def test_a_port_that_is_taken_has_a_clear_error(edge_rig: EdgeRig) -> None:
    with pytest.raises(Unavailable, match=r"cannot listen on 127.0.0.1:\d+ for ZeroMQ: Address al"):
        ZmtpEdge(edge_rig.edge.address)
    with pytest.raises(Unavailable, match=r"cannot listen on no\.such\.host\.invalid:0"):
        ZmtpEdge(Address("no.such.host.invalid", 0))


def test_ipv6() -> None:
    try:
        edge = ZmtpEdge(Address("::1", 0))
    except Unavailable as error:
        pytest.skip(error.message)
    try:
        with socket.create_connection(("::1", edge.address.port), PATIENCE_S) as made:
            made.sendall(HANDSHAKE + asked(1))
            end = time.monotonic() + PATIENCE_S
            while not (received := edge.receive()):
                assert time.monotonic() < end
            connection = edge._by_number[1]
            assert (rids(received), connection.where) == ([1], "::1")
    finally:
        edge.close()


def test_a_connection_has_the_listeners_options(edge_rig: EdgeRig) -> None:
    edge_rig.raw()
    (connection,) = edge_rig.edge._zmtp.values()
    made = connection._socket
    assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == tcp_listener.KEEPALIVE_IDLE_S
    assert (
        made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == tcp_listener.UNTAKEN_MS_MAX
    )
    assert not os.get_inheritable(made.fileno())

"""The ZMTP edge: requests in any fragmentation, connections that end, and a close.

The test takes the node's place. Raw connections speak ZeroMQ's protocol in arbitrary pieces; other
tests use ZeroMQ's own library.
"""

from __future__ import annotations

import os
import socket
import time

import pytest
import zmq

from tests.contract.edge_rig import DONE, HANDSHAKE, PATIENCE_S, EdgeRig, asked, rids, stalled
from tests.contract.served import Served
from weft.limits import MIB
from weft.proto import wire
from weft.server.edges import socket_edge as room
from weft.server.edges.edge import FLUSH_MS, Received
from weft.transport import zmtp

# --- more of one connection during a round ------------------------------------------------------


def test_more_of_one_connection_in_the_same_round(edge_rig: EdgeRig) -> None:
    raw, other = edge_rig.raw(), edge_rig.raw()
    raw.socket.sendall(asked(1))
    peer = edge_rig.take(1)[0].caller.peer
    other.socket.sendall(asked(10))
    raw.socket.sendall(b"".join(asked(rid) for rid in range(2, 8)))
    received: list[Received] = []
    end = time.monotonic() + PATIENCE_S
    while len(received) < 2:
        assert time.monotonic() < end
        received += edge_rig.edge.receive_from(peer, 2 - len(received))
    assert rids(received) == [2, 3], "in order, and as many as asked for"
    rest = edge_rig.take(5)
    assert sorted(rids(rest)) == [4, 5, 6, 7, 10], "the rest comes with the next rounds"
    assert [each for each in rids(rest) if each < 10] == [4, 5, 6, 7]


def test_no_more_of_a_connection_that_is_not_to_be_read(edge_rig: EdgeRig) -> None:
    raw = edge_rig.raw()
    raw.socket.sendall(asked(1))
    peer = edge_rig.take(1)[0].caller.peer
    assert edge_rig.edge.pause(peer)
    raw.socket.sendall(asked(2))
    for _ in range(20):
        assert edge_rig.edge.receive_from(peer, 9) == []
        time.sleep(0.001)
    edge_rig.edge.resume(peer)
    assert rids(edge_rig.take(1)) == [2]
    raw.socket.close()
    edge_rig.until(lambda: not edge_rig.edge.receive_from(peer, 9) and edge_rig.open == 0)
    assert edge_rig.edge.receive_from(peer, 9) == [], "the connection has ended"


# --- fragmentation of requests -----------------------------------------------------------------


def test_pieces_of_one_byte(edge_rig: EdgeRig) -> None:
    raw = edge_rig.raw(b"")
    received: list[Received] = []
    for byte in HANDSHAKE + asked(1, b"x" * 300) + asked(2):
        raw.socket.sendall(bytes((byte,)))
        received += edge_rig.turn(0.01)
    received += edge_rig.take(2 - len(received))
    assert [(each.caller.rid, each.payload) for each in received] == [(1, [b"x" * 300]), (2, [])]
    assert all(edge_rig.edge.send(each.caller, DONE, [b"p"]) for each in received)
    assert raw.answers(2) == [(1, [b"p"]), (2, [b"p"])]


def test_two_requests_in_one_segment_and_the_handshake_with_them(edge_rig: EdgeRig) -> None:
    raw = edge_rig.raw(b"")
    raw.socket.sendall(HANDSHAKE + asked(1) + asked(2))
    assert rids(edge_rig.take(2)) == [1, 2]
    raw.socket.sendall(asked(3) + asked(4)[:5])
    assert rids(edge_rig.take(1)) == [3]
    raw.socket.sendall(asked(4)[5:])
    assert rids(edge_rig.take(1)) == [4]


def test_more_than_the_kernel_holds_goes_both_ways(edge_rig: EdgeRig) -> None:
    large = os.urandom(8 * MIB)
    raw = edge_rig.raw()
    raw.socket.setblocking(False)
    left = memoryview(asked(1, large) + asked(2))
    received: list[Received] = []
    end = time.monotonic() + PATIENCE_S
    while len(received) < 2:
        assert time.monotonic() < end
        if left:
            try:
                left = left[raw.socket.send(left) :]
            except BlockingIOError:
                pass
        received += edge_rig.turn(0.001)
    assert (rids(received), received[0].payload) == ([1, 2], [large])
    assert edge_rig.edge.send(received[0].caller, DONE, [large, b"", large[:300]])
    assert edge_rig.edge.send(received[1].caller, DONE, ())
    assert raw.answers(2) == [(1, [large, b"", large[:300]]), (2, [])]


def test_an_answer_of_more_frames_than_the_system_takes_at_once(edge_rig: EdgeRig) -> None:
    frames = [b"%d" % number * 100 for number in range(3000)]
    raw = edge_rig.raw()
    raw.ask(1)
    (received,) = edge_rig.take(1)
    assert edge_rig.edge.send(received.caller, DONE, frames)
    assert raw.answers(1) == [(1, frames)]


def test_zeromqs_own_library(edge_rig: EdgeRig) -> None:
    context = zmq.Context()
    try:
        dealer = context.socket(zmq.DEALER)
        dealer.HEARTBEAT_IVL, dealer.HEARTBEAT_TIMEOUT = 50, 1000
        dealer.connect(f"tcp://{edge_rig.edge.address}")
        call = wire.encode(wire.Call(wire.WIRE_VERSION, 5, wire.Status()))
        payload = [b"", b"short", bytes(255), bytes(256), os.urandom(3 * MIB)]
        dealer.send_multipart([call, *payload])
        (received,) = edge_rig.take(1)
        assert received.payload == payload
        assert edge_rig.edge.send(received.caller, DONE, payload)
        edge_rig.until(lambda: bool(dealer.poll(0)))
        reply, *got = dealer.recv_multipart()
        assert wire.decode_reply(reply) == wire.Reply(5, DONE)
        assert got == payload
        # Its pings are answered: the connection outlives the library's timeout for silence.
        end = time.monotonic() + 1.5
        edge_rig.until(lambda: time.monotonic() > end)
        dealer.send(call)
        (again,) = edge_rig.take(1)
        assert again.caller == received.caller
    finally:
        context.destroy(0)


def test_a_ping_is_answered_between_two_halves_of_a_request(edge_rig: EdgeRig) -> None:
    raw = edge_rig.raw()
    request = asked(1, bytes(200_000))
    ping = b"\x04PING\x00\x0acontext"
    call = len(asked(1))
    raw.socket.sendall(request[:call] + bytes((4, len(ping))) + ping + request[call:])
    (received,) = edge_rig.take(1)
    assert received.payload == [bytes(200_000)]

    def heard() -> bool:
        raw.hear()
        return len(raw.reader.commands) == 2

    edge_rig.until(heard)
    assert raw.reader.commands[1] == b"\x04PONGcontext"


def test_what_is_no_request_is_told_so(edge_rig: EdgeRig) -> None:
    raw = edge_rig.raw()
    raw.socket.sendall(b"".join(zmtp.message([b"\xc1"])) + asked(1))
    assert rids(edge_rig.take(1)) == [1], "the connection goes on"
    assert raw.answers(1) == [(0, [])]


# --- closed connections ------------------------------------------------------------------------


def test_who_half_closes_is_heard_and_then_let_go(edge_rig: EdgeRig) -> None:
    raw = edge_rig.raw()
    raw.socket.sendall(b"".join(asked(rid) for rid in range(100)))
    raw.socket.shutdown(socket.SHUT_WR)
    received = edge_rig.take(100)
    assert rids(received) == list(range(100))
    edge_rig.until(lambda: edge_rig.open == 0)
    assert not edge_rig.edge.send(received[0].caller, DONE, ())
    assert edge_rig.until(raw.gone) == []


def test_who_leaves_in_the_middle_of_a_frame(edge_rig: EdgeRig) -> None:
    raw = edge_rig.raw()
    raw.socket.sendall(asked(1) + asked(2, bytes(100_000))[:50_000])
    (received,) = edge_rig.take(1)
    raw.socket.close()
    edge_rig.until(lambda: edge_rig.open == 0)
    again = edge_rig.raw()
    again.ask(3)
    (other,) = edge_rig.take(1)
    assert other.caller.peer != received.caller.peer, "a name is never used again"
    assert not edge_rig.edge.send(received.caller, DONE, ())
    assert edge_rig.edge.send(other.caller, DONE, ())
    assert again.answers(1) == [(3, [])]


def test_who_resets_the_connection(edge_rig: EdgeRig) -> None:
    raw = edge_rig.raw()
    raw.ask(1)
    (received,) = edge_rig.take(1)
    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    raw.socket.close()
    edge_rig.edge.send(received.caller, DONE, ())  # nothing is raised, even if the kernel knows
    edge_rig.until(lambda: edge_rig.open == 0)


# --- the end -----------------------------------------------------------------------------------


def test_a_close_flushes() -> None:
    edge_rig = EdgeRig()
    raw = edge_rig.raw()
    raw.ask(1)
    (received,) = edge_rig.take(1)
    assert edge_rig.edge.send(received.caller, DONE, [bytes(MIB)] * 16)
    assert edge_rig.edge.send(received.caller, DONE, ())
    raw.ask(2)  # never taken: it must not cost the answers
    assert edge_rig.edge._by_number[1].waiting
    pid = os.fork()
    if not pid:  # the client, which reads while the edge closes
        try:
            raw.socket.settimeout(PATIENCE_S)
            seen = zmtp.FrameReader(1 << 30)
            raw.socket.recv(zmtp.GREETING_BYTES, socket.MSG_WAITALL)
            while data := raw.socket.recv(1 << 20):
                seen.feed(data)
            os._exit(0 if len(seen.messages) == 2 else 1)
        finally:
            os._exit(2)
    edge_rig.edge.close()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    edge_rig.leave()


def test_a_close_waits_for_nobody_longer_than_it_may() -> None:
    own = EdgeRig()
    with stalled(own):
        began = time.monotonic()
        own.edge.close()
        assert FLUSH_MS / 1000 <= time.monotonic() - began < 20
    own.leave()


# --- in a node ---------------------------------------------------------------------------------


def test_a_node_tends_to_its_edge(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle node, too, closes connections without a handshake, without any request."""
    with socket.create_connection(served.node.zmq_address, PATIENCE_S) as stranger:
        greeting = stranger.recv(zmtp.GREETING_BYTES, socket.MSG_WAITALL)
        zmtp.check_greeting(greeting)
        monkeypatch.setattr(room, "HANDSHAKE_MS", 0)
        assert stranger.recv(1) == b""

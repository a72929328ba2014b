"""The direct edge: requests in any fragmentation, and the memory that a connection may pin.

The test takes the node's place. Raw connections speak ZeroMQ's protocol in arbitrary pieces; other
tests use ZeroMQ's own library.
"""

from __future__ import annotations

import os
import resource
import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
import zmq

from tests.contract.edge_rig import DONE, HANDSHAKE, PATIENCE_S, EdgeRig, Raw, asked, called
from tests.contract.served import Served
from weft.errors import Unavailable
from weft.limits import MIB
from weft.proto import wire
from weft.server.address import Address
from weft.server.edges import zmtp_edge as room
from weft.server.edges.edge import (
    FLUSH_MS,
    FRAME_BYTES_MAX,
    PEER_ANSWERS_MAX,
    PEER_BYTES_MAX,
    PEER_MESSAGES_MAX,
    ROUND_BYTES_MAX,
    ROUND_MESSAGES_MAX,
    EdgeCaller,
    Received,
)
from weft.server.edges.zmtp_connection import AHEAD_BYTES_MAX
from weft.server.edges.zmtp_edge import ZmtpEdge
from weft.transport import zmtp


@pytest.fixture
def rig() -> Iterator[EdgeRig]:
    made = EdgeRig()
    yield made
    made.close()


def rids(received: list[Received]) -> list[int]:
    return [each.caller.rid for each in received]


# --- fragmentation of requests -----------------------------------------------------------------


def test_pieces_of_one_byte(rig: EdgeRig) -> None:
    raw = rig.raw(b"")
    received: list[Received] = []
    for byte in HANDSHAKE + asked(1, b"x" * 300) + asked(2):
        raw.socket.sendall(bytes((byte,)))
        received += rig.turn(0.01)
    received += rig.take(2 - len(received))
    assert [(each.caller.rid, each.payload) for each in received] == [(1, [b"x" * 300]), (2, [])]
    assert all(rig.edge.send(each.caller, DONE, [b"p"]) for each in received)
    assert raw.answers(2) == [(1, [b"p"]), (2, [b"p"])]


def test_two_requests_in_one_segment_and_the_handshake_with_them(rig: EdgeRig) -> None:
    raw = rig.raw(b"")
    raw.socket.sendall(HANDSHAKE + asked(1) + asked(2))
    assert rids(rig.take(2)) == [1, 2]
    raw.socket.sendall(asked(3) + asked(4)[:5])
    assert rids(rig.take(1)) == [3]
    raw.socket.sendall(asked(4)[5:])
    assert rids(rig.take(1)) == [4]


def test_more_than_the_kernel_holds_goes_both_ways(rig: EdgeRig) -> None:
    large = os.urandom(8 * MIB)
    raw = rig.raw()
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
        received += rig.turn(0.001)
    assert (rids(received), received[0].payload) == ([1, 2], [large])
    assert rig.edge.send(received[0].caller, DONE, [large, b"", large[:300]])
    assert rig.edge.send(received[1].caller, DONE, ())
    assert raw.answers(2) == [(1, [large, b"", large[:300]]), (2, [])]


def test_an_answer_of_more_frames_than_the_system_takes_at_once(rig: EdgeRig) -> None:
    frames = [b"%d" % number * 100 for number in range(3000)]
    raw = rig.raw()
    raw.ask(1)
    (received,) = rig.take(1)
    assert rig.edge.send(received.caller, DONE, frames)
    assert raw.answers(1) == [(1, frames)]


def test_zeromqs_own_library(rig: EdgeRig) -> None:
    context = zmq.Context()
    try:
        dealer = context.socket(zmq.DEALER)
        dealer.HEARTBEAT_IVL, dealer.HEARTBEAT_TIMEOUT = 50, 1000
        dealer.connect(f"tcp://{rig.edge.address}")
        call = wire.encode(wire.Call(wire.WIRE_VERSION, 5, wire.Status()))
        payload = [b"", b"short", bytes(255), bytes(256), os.urandom(3 * MIB)]
        dealer.send_multipart([call, *payload])
        (received,) = rig.take(1)
        assert received.payload == payload
        assert rig.edge.send(received.caller, DONE, payload)
        rig.until(lambda: bool(dealer.poll(0)))
        reply, *got = dealer.recv_multipart()
        assert wire.decode_reply(reply) == wire.Reply(5, DONE)
        assert got == payload
        # Its pings are answered: the connection outlives the library's timeout for silence.
        end = time.monotonic() + 1.5
        rig.until(lambda: time.monotonic() > end)
        dealer.send(call)
        (again,) = rig.take(1)
        assert again.caller == received.caller
    finally:
        context.destroy(0)


def test_a_ping_is_answered_between_two_halves_of_a_request(rig: EdgeRig) -> None:
    raw = rig.raw()
    request = asked(1, bytes(200_000))
    ping = b"\x04PING\x00\x0acontext"
    call = len(asked(1))
    raw.socket.sendall(request[:call] + bytes((4, len(ping))) + ping + request[call:])
    (received,) = rig.take(1)
    assert received.payload == [bytes(200_000)]

    def heard() -> bool:
        raw.hear()
        return len(raw.reader.commands) == 2

    rig.until(heard)
    assert raw.reader.commands[1] == b"\x04PONGcontext"


def test_what_is_no_request_is_told_so(rig: EdgeRig) -> None:
    raw = rig.raw()
    raw.socket.sendall(b"".join(zmtp.message([b"\xc1"])) + asked(1))
    assert rids(rig.take(1)) == [1], "the connection goes on"
    assert raw.answers(1) == [(0, [])]


# --- refused connections -----------------------------------------------------------------------


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
def test_garbage_ends_its_connection_and_no_other(rig: EdgeRig, said: bytes) -> None:
    other = rig.raw()
    raw = rig.raw(b"")
    raw.socket.sendall(said)
    assert rig.until(raw.gone) == []
    other.ask(9)
    assert rids(rig.take(1)) == [9]
    assert rig.open == 1


def test_a_curve_client_of_the_library_gets_no_further(rig: EdgeRig) -> None:
    context = zmq.Context()
    try:
        dealer = context.socket(zmq.DEALER)
        dealer.curve_publickey, dealer.curve_secretkey = zmq.curve_keypair()
        dealer.curve_serverkey = zmq.curve_keypair()[0]
        dealer.connect(f"tcp://{rig.edge.address}")
        dealer.send(b"secret")
        rig.until(lambda: rig.edge._number > 0 and rig.open == 0)
        other = rig.raw()
        other.ask(3)
        assert rids(rig.take(1)) == [3]
    finally:
        context.destroy(0)


def test_who_does_not_shake_hands_is_closed(rig: EdgeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    silent, half, whole = rig.raw(b""), rig.raw(zmtp.GREETING[:20]), rig.raw()
    rig.until(lambda: rig.open == 3)
    rig.edge.tend()
    assert rig.open == 3
    monkeypatch.setattr(room, "HANDSHAKE_MS", 0)
    rig.edge.tend()
    rig.until(lambda: silent.gone() and half.gone())
    assert rig.open == 1
    whole.ask(1)
    assert rids(rig.take(1)) == [1]


def test_connections_past_the_limit_are_closed_at_once() -> None:
    rig = EdgeRig(connections_max=2)
    try:
        first, _ = rig.raw(), rig.raw()
        third = rig.raw(b"")
        rig.until(third.gone)
        assert (rig.open, rig.edge.refused) == (2, 1)
        first.socket.close()
        rig.until(lambda: rig.open == 1)
        rig.raw().ask(4)
        assert rids(rig.take(1)) == [4]
    finally:
        rig.close()


def test_without_descriptors_those_that_knock_wait(rig: EdgeRig) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as knocking:
        knocking.settimeout(PATIENCE_S)
        used = len(os.listdir("/proc/self/fd"))
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            assert used > 3
            knocking.connect(rig.edge.address)
            assert rig.edge.receive() == []
            ready = select.select([rig.edge._epoll], [], [], 0.05) if used < 1000 else ([], [], [])
            assert ready[0] == [], "it would spin"
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert rig.open == 0
        rig.edge.tend()
        knocking.sendall(HANDSHAKE + asked(1))
        assert rids(rig.take(1)) == [1]


def test_a_port_that_is_taken_has_a_clear_error(rig: EdgeRig) -> None:
    with pytest.raises(Unavailable, match=r"cannot listen on 127.0.0.1:\d+ for ZeroMQ: Address al"):
        ZmtpEdge(rig.edge.address)
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


def test_a_connection_has_the_listeners_options(rig: EdgeRig) -> None:
    rig.raw()
    (connection,) = rig.edge._by_number.values()
    made = connection._socket
    assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == room._KEEPALIVE_IDLE_S
    assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == room._UNTAKEN_MS_MAX
    assert not os.get_inheritable(made.fileno())


# --- closed connections ------------------------------------------------------------------------


def test_who_half_closes_is_heard_and_then_let_go(rig: EdgeRig) -> None:
    raw = rig.raw()
    raw.socket.sendall(b"".join(asked(rid) for rid in range(100)))
    raw.socket.shutdown(socket.SHUT_WR)
    received = rig.take(100)
    assert rids(received) == list(range(100))
    rig.until(lambda: rig.open == 0)
    assert not rig.edge.send(received[0].caller, DONE, ())
    assert rig.until(raw.gone) == []


def test_who_leaves_in_the_middle_of_a_frame(rig: EdgeRig) -> None:
    raw = rig.raw()
    raw.socket.sendall(asked(1) + asked(2, bytes(100_000))[:50_000])
    (received,) = rig.take(1)
    raw.socket.close()
    rig.until(lambda: rig.open == 0)
    again = rig.raw()
    again.ask(3)
    (other,) = rig.take(1)
    assert other.caller.peer != received.caller.peer, "a name is never used again"
    assert not rig.edge.send(received.caller, DONE, ())
    assert rig.edge.send(other.caller, DONE, ())
    assert again.answers(1) == [(3, [])]


def test_who_resets_the_connection(rig: EdgeRig) -> None:
    raw = rig.raw()
    raw.ask(1)
    (received,) = rig.take(1)
    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    raw.socket.close()
    rig.edge.send(received.caller, DONE, ())  # nothing is raised, even if the kernel knows
    rig.until(lambda: rig.open == 0)


# --- slow readers and floods -------------------------------------------------------------------


LARGE: Final = bytes(4 * MIB)


@contextmanager
def stalled(rig: EdgeRig) -> Iterator[tuple[Raw, EdgeCaller, int]]:
    """A client that reads nothing, with as many unsent answers as allowed."""
    raw = rig.raw()
    raw.ask(1)
    (received,) = rig.take(1)
    yield raw, received.caller, fill(rig, received.caller)


def fill(rig: EdgeRig, caller: EdgeCaller) -> int:
    """Send answers until one more would exceed the limit; return their number."""
    assert isinstance(caller.peer, int)
    connection = rig.edge._by_number[caller.peer]
    sent = 0
    while connection.held + len(LARGE) + 100 <= PEER_BYTES_MAX:
        assert rig.edge.send(caller, DONE, [LARGE])
        sent += 1
        assert sent <= PEER_BYTES_MAX // len(LARGE) + 8, "nothing piles up"
    return sent


def test_who_reads_nothing_pins_so_much_and_holds_up_nobody(rig: EdgeRig) -> None:
    with stalled(rig) as (raw, caller, sent):
        connection = rig.edge._by_number[1]
        assert PEER_BYTES_MAX // 2 < connection.held <= PEER_BYTES_MAX
        other = rig.raw()
        other.ask(5)
        raw.ask(2)  # not read yet
        (received,) = rig.take(1)
        assert received.caller.rid == 5
        assert rig.edge.send(received.caller, DONE, ())
        assert other.answers(1) == [(5, [])]
        assert rig.turn() == []
        assert select.select([rig.edge.fd], [], [], 0.05)[0] == [], "it would spin"
        heard = 0

        def all_heard() -> bool:
            nonlocal heard
            raw.hear()
            heard += len(raw.reader.messages)
            raw.reader.messages.clear()
            return heard == sent

        # Once there is room the connection is read again.
        assert rids(rig.until(all_heard) + rig.until(lambda: True)) == [2]
        assert not connection.waiting
        assert rig.edge.send(caller, DONE, ())


def test_who_has_too_many_bytes_waiting_is_let_go(rig: EdgeRig) -> None:
    """The client would wait for an answer that never comes; on a new connection it retries."""
    with stalled(rig) as (raw, caller, _sent):
        assert rig.edge.send(caller, DONE, ())  # there is room for small ones
        assert not rig.edge.send(caller, DONE, [LARGE])
        assert not rig.edge._by_number
        assert not rig.edge.send(caller, DONE, ())
        assert rig.until(raw.gone) == []


def test_small_answers_are_counted(rig: EdgeRig) -> None:
    """As many answers wait as a caller can have requested, and no more."""
    with stalled(rig) as (_, caller, large):
        for _ in range(PEER_ANSWERS_MAX - rig.edge._by_number[1]._answers):
            assert rig.edge.send(caller, DONE, ())
        assert large < PEER_MESSAGES_MAX
        assert not rig.edge.send(caller, DONE, ())
        assert not rig.edge._by_number


def test_requests_wait_while_their_caller_does_not_listen(rig: EdgeRig) -> None:
    """Requests that were already read wait, too, and are delivered when there is room."""
    raw = rig.raw()
    raw.socket.sendall(b"".join(asked(rid) for rid in range(ROUND_MESSAGES_MAX + 10)))
    received = rig.take(ROUND_MESSAGES_MAX)
    fill(rig, received[0].caller)
    assert rig.turn() == []
    later: list[Received] = []
    end = time.monotonic() + PATIENCE_S
    while len(later) < 10:
        assert time.monotonic() < end
        raw.hear()
        later += rig.turn()
    assert rids(later) == list(range(ROUND_MESSAGES_MAX, ROUND_MESSAGES_MAX + 10))


def test_who_leaves_while_his_answers_pile_up(rig: EdgeRig) -> None:
    with stalled(rig) as (raw, caller, _):
        raw.socket.close()
        rig.until(lambda: rig.open == 0)
        assert not rig.edge.send(caller, DONE, ())


def test_pings_of_who_does_not_listen_are_bounded(rig: EdgeRig) -> None:
    ping = b"\x04PING\x00\x0a" + bytes(16)
    flood = (bytes((4, len(ping))) + ping) * 5000
    raw = rig.raw()
    raw.socket.setblocking(False)
    left, stuck = memoryview(flood * 100), time.monotonic()
    connection = rig.edge._by_number[1]
    while left and time.monotonic() - stuck < 1:
        rig.turn()
        try:
            left = left[raw.socket.send(left[:100_000]) :]
            stuck = time.monotonic()
        except BlockingIOError:
            pass
        assert connection.held < 2 * MIB
    assert left, "somebody takes pings without end"


def test_a_flood_starves_nobody(rig: EdgeRig) -> None:
    flood, other = rig.raw(), rig.raw()
    flood.socket.setblocking(False)
    left = memoryview(b"".join(asked(rid) for rid in range(20_000)))
    taken = rounds = 0
    waited: list[int] = []
    while len(waited) < 20:
        if left:
            try:
                left = left[flood.socket.send(left) :]
            except BlockingIOError:
                pass
        other.ask(1_000_000)
        for number in range(1000):
            received = rig.turn(PATIENCE_S)
            rounds += 1
            assert len(received) <= ROUND_MESSAGES_MAX
            taken += len(received)
            if any(each.caller.rid == 1_000_000 for each in received):
                waited.append(number)
                break
    assert max(waited) <= 1, "it should be in the round after it came at the latest"
    assert taken > 20 * ROUND_MESSAGES_MAX // 2, "there was no flood"
    while taken < 20_020:
        received = rig.turn(PATIENCE_S)
        assert received, "what was read is forgotten"
        taken += len(received)
        if left:
            left = left[flood.socket.send(left) :]


def test_a_round_takes_so_many_bytes(rig: EdgeRig) -> None:
    """Frames that are complete at the same time are not all handled in one round."""
    large = bytes(3 * MIB)
    several = [rig.raw() for _ in range(12)]
    for raw in several:
        raw.socket.setblocking(False)
    left = {raw: memoryview(asked(1, large)) for raw in several}
    end = time.monotonic() + PATIENCE_S
    sizes: list[int] = []
    while sum(sizes) < len(several) * len(large):
        assert time.monotonic() < end
        for raw, rest in left.items():
            try:
                # The very last byte is sent when all others have arrived.
                stop = len(rest) if all(len(each) <= 1 for each in left.values()) else -1
                left[raw] = rest[raw.socket.send(rest[:stop]) :] if rest[:stop] else rest
            except BlockingIOError:
                pass
        received = rig.turn(0.01)
        sizes.append(sum(len(frame) for each in received for frame in each.payload))
    assert max(sizes) <= ROUND_BYTES_MAX + len(large)
    assert max(sizes) > len(large)


def test_large_pops_of_one_caller_come_one_by_one(rig: EdgeRig) -> None:
    """One answer leaves before the next is loaded; other callers are not blocked."""
    raw, other = rig.raw(), rig.raw()
    raw.ask(1)
    (received,) = rig.take(1)
    assert rig.edge.send(received.caller, DONE, [bytes(room.BULKY_BYTES)])
    raw.answers(1)
    pop = wire.Pop("q", 1)
    raw.socket.sendall(b"".join((*(called(rid, pop) for rid in (2, 3)), asked(4), called(5, pop))))
    other.socket.sendall(called(2, pop) + called(3, pop))
    rounds = [rids(rig.turn(PATIENCE_S)) for _ in range(3)]
    assert sorted(rounds[0]) == [2, 2, 3]
    assert rounds[1:] == [[3], [4, 5]]
    assert rig.edge.send(received.caller, DONE, [b"small"])
    raw.answers(1)
    raw.socket.sendall(called(6, pop) + called(7, pop))
    assert rids(rig.take(2)) == [6, 7]
    assert rig.turn() == []


def test_nothing_is_taken_while_a_large_answer_waits(rig: EdgeRig) -> None:
    raw = rig.raw()
    raw.ask(1)
    (received,) = rig.take(1)
    sent = 0
    while rig.edge._by_number[1].held < AHEAD_BYTES_MAX:
        assert rig.edge.send(received.caller, DONE, [LARGE])
        sent += 1
    raw.ask(2)
    assert rig.turn(0.05) == []
    heard = 0

    def all_heard() -> bool:
        nonlocal heard
        raw.hear()
        heard += len(raw.reader.messages)
        raw.reader.messages.clear()
        return heard == sent

    assert rids(rig.until(all_heard) + rig.until(lambda: True)) == [2]


# --- the end -----------------------------------------------------------------------------------


def test_a_close_flushes() -> None:
    rig = EdgeRig()
    raw = rig.raw()
    raw.ask(1)
    (received,) = rig.take(1)
    assert rig.edge.send(received.caller, DONE, [bytes(MIB)] * 16)
    assert rig.edge.send(received.caller, DONE, ())
    raw.ask(2)  # never taken: it must not cost the answers
    assert rig.edge._by_number[1].waiting
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
    rig.edge.close()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    rig.leave()


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

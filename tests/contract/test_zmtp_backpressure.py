"""The memory that one connection may pin, and the share of a round that one connection may take."""

from __future__ import annotations

import select
import time

from tests.contract.edge_rig import (
    DONE,
    LARGE,
    PATIENCE_S,
    EdgeRig,
    asked,
    called,
    fill,
    rids,
    stalled,
)
from weft.limits import MIB
from weft.proto import wire
from weft.server.edges import zmtp_edge as room
from weft.server.edges.edge import (
    PEER_ANSWERS_MAX,
    PEER_BYTES_MAX,
    PEER_MESSAGES_MAX,
    ROUND_BYTES_MAX,
    ROUND_MESSAGES_MAX,
    Received,
)
from weft.server.edges.response_buffer import AHEAD_BYTES_MAX


def test_who_reads_nothing_pins_so_much_and_holds_up_nobody(edge_rig: EdgeRig) -> None:
    with stalled(edge_rig) as (raw, caller, sent):
        connection = edge_rig.edge._zmtp[1]
        assert PEER_BYTES_MAX // 2 < connection.held <= PEER_BYTES_MAX
        other = edge_rig.raw()
        other.ask(5)
        raw.ask(2)  # not read yet
        (received,) = edge_rig.take(1)
        assert received.caller.rid == 5
        assert edge_rig.edge.send(received.caller, DONE, ())
        assert other.answers(1) == [(5, [])]
        assert edge_rig.turn() == []
        assert select.select([edge_rig.edge.fd], [], [], 0.05)[0] == [], "it would spin"
        # Once there is room the connection is read again.
        assert rids(edge_rig.until(raw.hears(sent)) + edge_rig.until(lambda: True)) == [2]
        assert not connection.waiting
        assert edge_rig.edge.send(caller, DONE, ())


def test_who_has_too_many_bytes_waiting_is_let_go(edge_rig: EdgeRig) -> None:
    """The client would wait for an answer that never comes; on a new connection it retries."""
    with stalled(edge_rig) as (raw, caller, _sent):
        assert edge_rig.edge.send(caller, DONE, ())  # there is room for small ones
        assert not edge_rig.edge.send(caller, DONE, [LARGE])
        assert not edge_rig.edge._zmtp
        assert not edge_rig.edge.send(caller, DONE, ())
        assert edge_rig.until(raw.gone) == []


def test_small_answers_are_counted(edge_rig: EdgeRig) -> None:
    """As many answers wait as a caller can have requested, and no more."""
    with stalled(edge_rig) as (_, caller, large):
        for _ in range(PEER_ANSWERS_MAX - edge_rig.edge._zmtp[1]._answers):
            assert edge_rig.edge.send(caller, DONE, ())
        assert large < PEER_MESSAGES_MAX
        assert not edge_rig.edge.send(caller, DONE, ())
        assert not edge_rig.edge._zmtp


def test_requests_wait_while_their_caller_does_not_listen(edge_rig: EdgeRig) -> None:
    """Requests that were already read wait, too, and are delivered when there is room."""
    raw = edge_rig.raw()
    raw.socket.sendall(b"".join(asked(rid) for rid in range(ROUND_MESSAGES_MAX + 10)))
    received = edge_rig.take(ROUND_MESSAGES_MAX)
    fill(edge_rig, received[0].caller)
    assert edge_rig.turn() == []
    later: list[Received] = []
    end = time.monotonic() + PATIENCE_S
    while len(later) < 10:
        assert time.monotonic() < end
        raw.hear()
        later += edge_rig.turn()
    assert rids(later) == list(range(ROUND_MESSAGES_MAX, ROUND_MESSAGES_MAX + 10))


def test_who_leaves_while_his_answers_pile_up(edge_rig: EdgeRig) -> None:
    with stalled(edge_rig) as (raw, caller, _):
        raw.socket.close()
        edge_rig.until(lambda: edge_rig.open == 0)
        assert not edge_rig.edge.send(caller, DONE, ())


def test_pings_of_who_does_not_listen_are_bounded(edge_rig: EdgeRig) -> None:
    ping = b"\x04PING\x00\x0a" + bytes(16)
    flood = (bytes((4, len(ping))) + ping) * 5000
    raw = edge_rig.raw()
    raw.socket.setblocking(False)
    left, stuck = memoryview(flood * 100), time.monotonic()
    connection = edge_rig.edge._zmtp[1]
    while left and time.monotonic() - stuck < 1:
        edge_rig.turn()
        try:
            left = left[raw.socket.send(left[:100_000]) :]
            stuck = time.monotonic()
        except BlockingIOError:
            pass
        assert connection.held < 2 * MIB
    assert left, "somebody takes pings without end"


def test_a_flood_starves_nobody(edge_rig: EdgeRig) -> None:
    flood, other = edge_rig.raw(), edge_rig.raw()
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
            received = edge_rig.turn(PATIENCE_S)
            rounds += 1
            assert len(received) <= ROUND_MESSAGES_MAX
            taken += len(received)
            if any(each.caller.rid == 1_000_000 for each in received):
                waited.append(number)
                break
    assert max(waited) <= 1, "it should be in the round after it came at the latest"
    assert taken > 20 * ROUND_MESSAGES_MAX // 2, "there was no flood"
    while taken < 20_020:
        received = edge_rig.turn(PATIENCE_S)
        assert received, "what was read is forgotten"
        taken += len(received)
        if left:
            left = left[flood.socket.send(left) :]


def test_a_round_takes_so_many_bytes(edge_rig: EdgeRig) -> None:
    """Frames that are complete at the same time are not all handled in one round."""
    large = bytes(3 * MIB)
    several = [edge_rig.raw() for _ in range(12)]
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
        received = edge_rig.turn(0.01)
        sizes.append(sum(len(frame) for each in received for frame in each.payload))
    assert max(sizes) <= ROUND_BYTES_MAX + len(large)
    assert max(sizes) > len(large)


def test_large_pops_of_one_caller_come_one_by_one(edge_rig: EdgeRig) -> None:
    """One answer leaves before the next is loaded; other callers are not blocked."""
    raw, other = edge_rig.raw(), edge_rig.raw()
    raw.ask(1)
    (received,) = edge_rig.take(1)
    assert edge_rig.edge.send(received.caller, DONE, [bytes(room.BULKY_BYTES)])
    raw.answers(1)
    pop = wire.Pop("q", 1)
    raw.socket.sendall(b"".join((*(called(rid, pop) for rid in (2, 3)), asked(4), called(5, pop))))
    other.socket.sendall(called(2, pop) + called(3, pop))
    rounds = [rids(edge_rig.turn(PATIENCE_S)) for _ in range(3)]
    assert sorted(rounds[0]) == [2, 2, 3]
    assert rounds[1:] == [[3], [4, 5]]
    assert edge_rig.edge.send(received.caller, DONE, [b"small"])
    raw.answers(1)
    raw.socket.sendall(called(6, pop) + called(7, pop))
    assert rids(edge_rig.take(2)) == [6, 7]
    assert edge_rig.turn() == []


def test_nothing_is_taken_while_a_large_answer_waits(edge_rig: EdgeRig) -> None:
    raw = edge_rig.raw()
    raw.ask(1)
    (received,) = edge_rig.take(1)
    sent = 0
    while edge_rig.edge._zmtp[1].held < AHEAD_BYTES_MAX:
        assert edge_rig.edge.send(received.caller, DONE, [LARGE])
        sent += 1
    raw.ask(2)
    assert edge_rig.turn(0.05) == []
    assert rids(edge_rig.until(raw.hears(sent)) + edge_rig.until(lambda: True)) == [2]

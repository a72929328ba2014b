"""Unsent answers of a closed connection: their messages are returned at once.

No client has seen a message whose answer the kernel did not take completely. The edge names these
messages (`undelivered`), and the node returns them to their queues without counting a delivery.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from typing import Final

import pytest

from tests.contract.edge_rig import HANDSHAKE, EdgeRig, called
from tests.contract.served import Served, eventually
from weft.limits import MIB
from weft.proto import wire
from weft.server.edges.edge import PEER_BYTES_MAX
from weft.server.edges.response_budget import HEARS_BYTES_MAX

LARGE: Final = os.urandom(4 * MIB)


@pytest.fixture
def rig() -> Iterator[EdgeRig]:
    made = EdgeRig()
    yield made
    made.close()


def lending(number: int) -> wire.Popped:
    return wire.Popped([wire.Lent(0, number, number, 0, 1, 1, number, 1, 0, 1000)])


def test_messages_of_answers_that_were_not_sent_are_known_when_the_connection_ends(
    rig: EdgeRig,
) -> None:
    raw = rig.raw()
    raw.ask(1)
    (received,) = rig.take(1)
    count = PEER_BYTES_MAX // len(LARGE) - 1
    for number in range(1, count + 1):
        assert rig.edge.send(received.caller, lending(number), [LARGE])
    assert len(raw.answers(1)) == 1  # the kernel may have more of them
    assert rig.edge.undelivered == []
    raw.socket.close()
    rig.until(lambda: rig.open == 0)
    unsent = [one.nonce for one in rig.edge.undelivered]
    assert 1 not in unsent, "the client has read it"
    assert unsent == list(range(unsent[0], count + 1)), "in order, up to the last one"
    assert len(unsent) > count // 2, "the kernel does not hold so much"


def test_messages_of_answers_that_were_sent_late_are_not_given_back(rig: EdgeRig) -> None:
    raw = rig.raw()
    raw.ask(1)
    (received,) = rig.take(1)
    for number in range(1, 4):
        assert rig.edge.send(received.caller, lending(number), [LARGE])
    assert len(raw.answers(3)) == 3
    raw.socket.close()
    rig.until(lambda: rig.open == 0)
    assert rig.edge.undelivered == []


def test_an_answer_too_many_gives_back_those_that_wait(rig: EdgeRig) -> None:
    raw = rig.raw()
    raw.ask(1)
    (received,) = rig.take(1)
    number = 1
    while rig.edge.send(received.caller, lending(number), [LARGE]):
        number += 1
    unsent = [one.nonce for one in rig.edge.undelivered]
    assert unsent == list(range(unsent[0], number)), "the node gives the last one back itself"


def test_unsent_messages_are_ready_again_when_their_connection_ends(served: Served) -> None:
    """Their leases have minutes to go, and the deliveries are not counted."""
    name = served.make()
    pops, each = 8, 4
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        deaf.connect(served.node.zmq_address)
        deaf.sendall(HANDSHAKE)
        for rid in range(1, pops + 1):
            deaf.sendall(called(rid, wire.Pop(name, each, 60_000, 600_000)))
        eventually(lambda: served.describe(name).waiting_pops == pops)
        for _ in range(pops):
            served.push(name, *[os.urandom(MIB) for _ in range(each)])
        # This much waits in the connection before the node answers no more of its pops.
        eventually(lambda: served.describe(name).leased * MIB >= HEARS_BYTES_MAX)
    # The kernel may have taken the first answers completely: their leases go on.
    eventually(lambda: served.describe(name).leased <= 2 * each)
    ready = served.describe(name).ready
    assert ready >= (pops - 2) * each
    counts = [message.deliveries for _ in range(ready) for message in served.pop(name)]
    assert counts == [1] * ready


SMALL: Final = os.urandom(32 * 1024)


def test_gathered_answers_leave_together_and_in_order(rig: EdgeRig) -> None:
    raw = rig.raw()
    for rid in (1, 2, 3):
        raw.ask(rid)
    received = rig.take(3)
    for each in received:
        assert rig.edge.send_soon(each.caller, lending(each.caller.rid), [SMALL])
    rig.edge.flush()
    assert [rid for rid, _ in raw.answers(3)] == [1, 2, 3]
    assert rig.edge.undelivered == []


def test_messages_of_gathered_answers_that_were_not_sent_are_known(rig: EdgeRig) -> None:
    """The kernel takes some of the answers: the others are buffered, and given back at the end."""
    raw = rig.raw()
    raw.ask(1)
    (received,) = rig.take(1)
    count = 2 * HEARS_BYTES_MAX // len(SMALL)
    for number in range(1, count + 1):
        assert rig.edge.send_soon(received.caller, lending(number), [SMALL])
    rig.edge.flush()
    assert raw.answers(1)
    raw.socket.close()
    rig.until(lambda: rig.open == 0)
    unsent = [one.nonce for one in rig.edge.undelivered]
    assert 1 not in unsent, "the client has read it"
    assert unsent == list(range(unsent[0], count + 1)), "in order, up to the last one"


def test_gathered_answers_of_a_broken_connection_are_given_back(rig: EdgeRig) -> None:
    raw = rig.raw()
    raw.ask(1)
    (received,) = rig.take(1)
    linger = struct.pack("ii", 1, 0)
    raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    raw.socket.close()  # with a reset: the next write fails
    for number in (1, 2):
        assert rig.edge.send_soon(received.caller, lending(number), [SMALL])
    rig.edge.flush()
    assert [one.nonce for one in rig.edge.undelivered] == [1, 2]
    assert rig.open == 0

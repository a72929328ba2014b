"""The peer edge: messages between two and three real edges, and messages that an edge drops."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest
import zmq

from tests.contract.served import eventually
from weft.dht.messages import AnyMessage, Ping, Prepare, encode
from weft.errors import InvalidArgument, Unavailable
from weft.persistence.node_keys import Keys, make_keys
from weft.server.address import Address
from weft.server.edges import peer_edge
from weft.server.edges.edge import ROUND_MESSAGES_MAX
from weft.server.edges.peer_edge import PeerEdge, check_peer

CLUSTER = "c" * 32
ANY_PORT = Address("127.0.0.1", 0)
Heard = list[tuple[str, list[AnyMessage]]]


class Edge:
    """A named peer edge, and the messages it received."""

    def __init__(self, node: str, address: Address = ANY_PORT, keys: Keys | None = None) -> None:
        self.node = node
        self.keys = keys or make_keys()
        self.edge = PeerEdge(address, self.keys, CLUSTER, node)
        self.heard: Heard = []

    @property
    def as_peer(self) -> tuple[str, str]:
        return str(self.edge.address), self.keys.public

    def know(self, *others: Edge) -> None:
        self.edge.know({other.node: other.as_peer for other in others})

    def listen(self, seconds: float = 0.0) -> Heard:
        if self.edge.socket.poll(int(seconds * 1000)):
            self.heard += self.edge.receive()
        return self.heard


@contextmanager
def opened(*edges: Edge) -> Iterator[None]:
    try:
        yield
    finally:
        for edge in edges:
            edge.edge.close()


@pytest.fixture
def pair() -> Iterator[tuple[Edge, Edge]]:
    one, two = Edge("one"), Edge("two")
    one.know(one, two)
    two.know(one, two)
    with opened(one, two):
        yield one, two


def say(sender: Edge, to: Edge, *messages: AnyMessage, seconds: float = 100) -> None:
    """Send again and again until received, as the core does."""
    known = len(to.heard)

    def heard() -> bool:
        sender.edge.send(to.node, messages)
        time.sleep(0.02)
        return len(to.listen()) > known

    eventually(heard, seconds)


def large(size: int) -> AnyMessage:
    return Prepare((1, 1, "x" * size))


def silent(sender: Edge, to: Edge, seconds: float = 0.8) -> bool:
    """True if nothing arrives although messages are sent."""
    known, end = len(to.heard), time.monotonic() + seconds
    while time.monotonic() < end:
        sender.edge.send(to.node, [Ping(1)])
        time.sleep(0.02)
        if len(to.listen()) > known:
            return False
    return True


def test_a_rounds_messages_arrive_together_and_in_order(pair: tuple[Edge, Edge]) -> None:
    one, two = pair
    say(one, two, Ping(1))
    messages: list[AnyMessage] = [Ping(5), Prepare((3, 1, "two")), Ping(6)]
    assert one.edge.send("two", messages)
    # Resent messages may still arrive before.
    eventually(lambda: two.listen()[-1] == ("one", messages))
    say(two, one, Ping(9))
    assert one.heard[0] == ("two", [Ping(9)])


def test_three_hear_each_other() -> None:
    edges = [Edge("one"), Edge("two"), Edge("three")]
    with opened(*edges):
        for edge in edges:
            edge.know(*edges)
        for sender in edges:
            for to in edges:
                if sender is not to:
                    say(sender, to, Ping(1))
                    assert to.heard[-1][0] == sender.node


def test_nobody_is_sent_to_who_is_not_known(pair: tuple[Edge, Edge]) -> None:
    one, _ = pair
    assert not one.edge.send("three", [Ping(1)])
    assert not one.edge.send("one", [Ping(1)])
    assert not one.edge.send("two", [])


def test_a_stranger_is_not_let_in_until_the_view_has_its_key(pair: tuple[Edge, Edge]) -> None:
    one, two = pair
    stranger = Edge("three")
    with opened(stranger):
        stranger.know(one, two)
        assert silent(stranger, one)
        assert one.edge.dropped.total() == 0  # refused during the handshake
        one.know(one, two, stranger)
        say(stranger, one, Ping(3))
        assert one.heard == [("three", [Ping(3)])]


def test_a_server_with_another_key_is_not_spoken_to(pair: tuple[Edge, Edge]) -> None:
    """A process that has taken over an address does not get messages meant for the node there."""
    one, two = pair
    one.edge.know({"two": (str(two.edge.address), make_keys().public)})
    assert silent(one, two)


def test_a_member_cannot_speak_in_anothers_name(pair: tuple[Edge, Edge]) -> None:
    one, two = pair
    thief = Edge("two", keys=make_keys())  # a member in its own right, under the key of "three"
    with opened(thief):
        thief.know(one)
        one.edge.know({"two": two.as_peer, "three": thief.as_peer})
        assert silent(thief, one)
        assert one.edge.dropped["not its key"] > 0
        say(two, one, Ping(1))
        assert {sender for sender, _ in one.heard} == {"two"}


def test_another_cluster_is_not_heard(pair: tuple[Edge, Edge]) -> None:
    one, two = pair
    other = PeerEdge(ANY_PORT, two.keys, "d" * 32, "two")
    two.edge.close()
    two.edge = other
    one.know(two)
    two.know(one)
    assert silent(two, one)
    assert one.edge.dropped["other cluster"] > 0


def test_a_removed_peer_is_not_heard_any_more(pair: tuple[Edge, Edge]) -> None:
    one, two = pair
    say(two, one, Ping(1))
    one.know(one)  # its connection is still open
    assert silent(two, one)
    assert one.edge.dropped["not in the view"] > 0
    one.know(one, two)
    say(two, one, Ping(2))


def test_a_peer_that_comes_back_on_its_port_is_found_again(pair: tuple[Edge, Edge]) -> None:
    one, two = pair
    say(one, two, Ping(1))
    address = two.edge.address
    two.edge.close()
    eventually(lambda: not one.edge.send("two", [Ping(2)]))  # nothing is buffered for it
    again = Edge("two", address, two.keys)
    two.edge = again.edge
    two.know(one)
    two.heard.clear()
    say(one, two, Ping(3))
    assert two.heard[-1] == ("one", [Ping(3)])


def test_a_peer_with_a_new_address_and_then_a_new_key(pair: tuple[Edge, Edge]) -> None:
    one, two = pair
    say(one, two, Ping(1))
    for keys in (two.keys, make_keys()):
        moved = Edge("two", keys=keys)
        with opened(moved):
            moved.know(one)
            one.know(moved)
            say(one, moved, Ping(2))
            say(moved, one, Ping(3))


def test_what_is_too_large_is_not_sent_and_hurts_nobody(pair: tuple[Edge, Edge]) -> None:
    one, two = pair
    say(one, two, Ping(1))
    much = large(peer_edge.PEER_FRAME_BYTES_MAX)
    assert not one.edge.send("two", [much])
    assert one.edge.dropped["too large to send"] == 1
    fits = large(peer_edge.PEER_FRAME_BYTES_MAX - 100)
    say(one, two, fits)
    assert two.heard[-1] == ("one", [fits])


def test_a_round_that_is_too_large_for_a_frame_is_taken_apart(pair: tuple[Edge, Edge]) -> None:
    one, two = pair
    say(one, two, Ping(1))
    half = large(peer_edge.PEER_FRAME_BYTES_MAX * 2 // 3)
    too_much = large(peer_edge.PEER_FRAME_BYTES_MAX)
    say(one, two, Ping(7), half, too_much, half)
    assert two.heard[-1] == ("one", [Ping(7), half, half])
    assert one.edge.dropped["too large to send"] >= 1


def test_a_peer_that_does_not_read_pins_little(pair: tuple[Edge, Edge]) -> None:
    one, two = pair
    say(one, two, Ping(1))
    much = large(peer_edge.PEER_FRAME_BYTES_MAX // 4)
    sent = 0
    while one.edge.send("two", [much]):
        sent += 1
        assert sent < 100, "it takes everything"
    eventually(lambda: bool(two.listen()))


# --- foreign and malformed messages -----------------------------------------------------------


@pytest.fixture
def raw(pair: tuple[Edge, Edge]) -> Iterator[zmq.Socket[bytes]]:
    """A connection with the key of "two", to send any frames."""
    one, two = pair
    context = zmq.Context()
    socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
    socket.curve_serverkey = one.keys.public.encode()
    socket.curve_publickey = two.keys.public.encode()
    socket.curve_secretkey = two.keys.secret.encode()
    socket.linger = 0
    socket.connect(f"tcp://{one.edge.address}")
    yield socket
    socket.close()
    context.term()


def header(
    version: int = peer_edge.PEER_VERSION, cluster: str = CLUSTER, node: str = "two"
) -> bytes:
    return msgspec.msgpack.encode([version, cluster, node])


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([b""], "malformed header"),
        ([b"\xc1\xc1"], "malformed header"),
        ([msgspec.msgpack.encode(["1", 2, 3])], "malformed header"),
        ([header(version=99), encode([Ping(1)])], "other version"),
        ([header(), b"nonsense"], "malformed message"),
        ([header(), encode(Ping(1))], "malformed message"),
        ([header(), encode([Ping(1)]), b"\x92\xa4ping"], "malformed message"),
        ([header(), b"\x91" * 5000], "malformed message"),
    ],
)
def test_malformed_frames_are_dropped_and_counted(
    pair: tuple[Edge, Edge], raw: zmq.Socket[bytes], frames: list[bytes], why: str
) -> None:
    one, two = pair
    raw.send_multipart(frames)
    eventually(lambda: one.listen() == [] and one.edge.dropped[why] == 1)
    raw.send_multipart([header(), encode([Ping(4)])])
    eventually(lambda: one.listen() == [("two", [Ping(4)])])
    say(two, one, Ping(5))


def test_a_later_version_may_add_to_the_header(
    pair: tuple[Edge, Edge], raw: zmq.Socket[bytes]
) -> None:
    one, _ = pair
    longer = msgspec.msgpack.encode([peer_edge.PEER_VERSION, CLUSTER, "two", "more"])
    raw.send_multipart([longer, encode([Ping(4)])])
    eventually(lambda: one.listen() == [("two", [Ping(4)])])


def test_one_round_takes_so_much_and_no_more(
    pair: tuple[Edge, Edge], raw: zmq.Socket[bytes]
) -> None:
    one, _ = pair
    sent, rounds = 0, [0]
    end = time.monotonic() + 100
    while rounds[-1] < ROUND_MESSAGES_MAX:  # that many arrived together
        assert time.monotonic() < end
        for number in range(100):
            raw.send_multipart([header(), encode([Ping(number)])])
        sent += 100
        time.sleep(0.3)
        rounds.append(len(one.edge.receive()))
    while sum(rounds) < sent:
        assert time.monotonic() < end
        rounds.append(len(one.edge.receive()))
    assert max(rounds) == ROUND_MESSAGES_MAX


def test_a_socket_without_curve_is_not_heard(pair: tuple[Edge, Edge]) -> None:
    one, _ = pair
    context = zmq.Context()
    with context.socket(zmq.DEALER) as plain:
        plain.linger = 0
        plain.connect(f"tcp://{one.edge.address}")
        plain.send_multipart([header(), encode([Ping(1)])])
        assert one.listen(0.5) == []
        assert one.edge.dropped.total() == 0
    context.term()


# --- addresses and keys -----------------------------------------------------------------------


def test_a_port_in_use_is_said(pair: tuple[Edge, Edge]) -> None:
    one, _ = pair
    with pytest.raises(Unavailable, match=r"cannot listen on .* for other nodes.*--peer-listen"):
        PeerEdge(one.edge.address, make_keys(), CLUSTER, "x")


def test_a_peer_that_cannot_be_does_not_stop_the_others(pair: tuple[Edge, Edge]) -> None:
    one, two = pair
    one.edge.know({"bad": ("nowhere", "key"), "two": two.as_peer})
    assert not one.edge.send("bad", [Ping(1)])
    say(one, two, Ping(1))


@pytest.mark.parametrize(
    ("address", "key"),
    [
        ("h:1", ""),
        ("h:1", "x" * 39),
        ("h:1", '"' * 40),
        ("h:1", "é" * 40),
        ("h:0", None),
        ("h", None),
    ],
)
def test_a_peer_is_checked(address: str, key: str | None) -> None:
    with pytest.raises(InvalidArgument):
        check_peer(address, make_keys().public if key is None else key)


def test_ipv6() -> None:
    try:
        one = Edge("one", Address("::1", 0))
    except Unavailable:
        pytest.skip("this machine has no IPv6")
    two = Edge("two", Address("::1", 0))
    with opened(one, two):
        one.know(two)
        two.know(one)
        say(one, two, Ping(1))


def test_the_descriptor_tells_of_all_that_comes_after_a_look(pair: tuple[Edge, Edge]) -> None:
    """A node that received nothing reads again only when the descriptor is ready."""
    one, two = pair
    say(one, two, Ping(0))
    ready = select.poll()
    ready.register(two.edge.fd, select.POLLIN)
    heard: list[int] = []
    for turn in range(1, 300):
        burst = 1 + turn % 3
        for part in range(burst):
            assert one.edge.send("two", [Ping(10 * turn + part)])
        before = len(heard)
        end = time.monotonic() + 100
        while len(heard) < before + burst:
            assert time.monotonic() < end, "it slept through a message"
            if two.edge.pending() or ready.poll(10_000):
                for _, messages in two.edge.receive():
                    heard += [each.version for each in messages if isinstance(each, Ping)]
    assert heard == [10 * turn + part for turn in range(1, 300) for part in range(1 + turn % 3)]

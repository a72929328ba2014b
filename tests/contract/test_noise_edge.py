"""An encrypted data path, end to end: the client's own connection and the node's edge."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import zmq

from tests.contract.edge_rig import DONE, HANDSHAKE, PATIENCE_S, EdgeRig
from weft.client.transport.connection import REFUSED, UP
from weft.client.transport.tcp_connection import TcpConnection
from weft.proto import wire
from weft.server.edges.edge import PEER_BYTES_MAX, Received
from weft.transport import noise, noise_transport, zmtp

SECRET = os.urandom(32)
KEY = noise.public_of(SECRET)


@pytest.fixture
def rig() -> Iterator[EdgeRig]:
    made = EdgeRig(secret=SECRET)
    yield made
    made.close()


@contextmanager
def direct(address: str, key: bytes | None = KEY) -> Iterator[TcpConnection]:
    made = TcpConnection(address, key)
    try:
        yield made
    finally:
        made.close(0)


def drive(rig: EdgeRig, connection: TcpConnection, so: Callable[[list[int]], bool]) -> list[int]:
    """Drive both ends until the condition holds; return the connection's state changes."""
    seen: list[int] = []
    end = time.monotonic() + PATIENCE_S
    while not so(seen):
        assert time.monotonic() < end, f"it did not happen in time: {seen}"
        assert rig.turn(0.005) == []
        seen += connection.changes()
    return seen


@contextmanager
def connected(rig: EdgeRig) -> Iterator[TcpConnection]:
    with direct(str(rig.edge.address)) as made:
        drive(rig, made, lambda seen: UP in seen)
        yield made


def call(rid: int) -> bytes:
    return wire.encode(wire.Call(wire.WIRE_VERSION, rid, wire.Status()))


def answers(rig: EdgeRig, connection: TcpConnection, count: int) -> list[list[bytes]]:
    found: list[list[bytes]] = []

    def all_there(_: list[int]) -> bool:
        while (message := connection.receive()) is not None:
            found.append([bytes(frame) for frame in message])
        return len(found) >= count

    drive(rig, connection, all_there)
    return found


@pytest.mark.parametrize("size", [0, 1, 255, 70_000, 5_000_000])
def test_requests_and_answers_of_any_size(rig: EdgeRig, size: int) -> None:
    body = os.urandom(size)
    with connected(rig) as client:
        for rid in range(1, 4):
            assert client.send([call(rid), body])
            received: list[Received] = []
            end = time.monotonic() + PATIENCE_S
            while not received:
                assert time.monotonic() < end
                received = rig.turn(0.005)
                client.changes()  # continues the write
            assert [bytes(frame) for frame in received[0].payload] == [body]
            assert rig.edge.send(received[0].caller, DONE, [body, b"more"])
            first, *payload = answers(rig, client, 1)[0]
            assert wire.decode_reply(first).rid == rid
            assert payload == [body, b"more"]


def test_nothing_of_it_can_be_read_on_the_way(rig: EdgeRig) -> None:
    """A relay sees every byte of both directions."""
    marker = b"a secret that nobody reads" * 10
    with socket.create_server(("127.0.0.1", 0)) as middle:
        middle.settimeout(PATIENCE_S)
        with direct(f"127.0.0.1:{middle.getsockname()[1]}") as client:
            near, _ = middle.accept()
            far = socket.create_connection(rig.edge.address, PATIENCE_S)
            seen = b""

            def relayed(_: list[int]) -> None:
                nonlocal seen
                for here, there in ((near, far), (far, near)):
                    here.setblocking(False)
                    try:
                        data = here.recv(1 << 20)
                    except BlockingIOError:
                        continue
                    there.setblocking(True)
                    there.sendall(data)
                    seen += data

            states: list[int] = []
            received: list[Received] = []
            end = time.monotonic() + PATIENCE_S
            sent = False
            while not received:
                assert time.monotonic() < end
                received = rig.turn(0.001)
                states += client.changes()
                relayed(states)
                if UP in states and not sent:
                    sent = client.send([call(1), marker])
            rig.edge.send(received[0].caller, DONE, [marker])
            while (answer := client.receive()) is None:
                assert time.monotonic() < end
                rig.turn(0.001)
                relayed(states)
            assert bytes(answer[1]) == marker
            assert marker not in seen
            assert b"secret" not in seen
            assert b"DEALER" not in seen  # only the greeting is unencrypted
            assert noise_transport.MECHANISM in seen
            near.close()
            far.close()


def test_a_thousand_answers_at_once(rig: EdgeRig) -> None:
    with connected(rig) as client:
        for rid in range(1, 1001):
            assert client.send([call(rid)])
        for received in rig.take(1000):
            assert rig.edge.send(received.caller, DONE, [b"%d" % received.caller.rid])
        found = answers(rig, client, 1000)
    assert [int(payload) for _, payload in found] == list(range(1, 1001))


def test_who_reads_nothing_is_let_go_and_its_answers_are_whole_until_then(rig: EdgeRig) -> None:
    with connected(rig) as client:
        assert client.send([call(1)])
        caller = rig.take(1)[0].caller
        body = os.urandom(1 << 20)
        sent = 0
        while rig.edge.send(caller, DONE, [body]):
            sent += 1
            assert sent < 2 * PEER_BYTES_MAX // len(body)
        assert rig.open == 0
        whole = 0
        while (message := client.receive()) is not None:
            assert bytes(message[1]) == body
            whole += 1
        assert whole <= sent


@pytest.mark.parametrize("key", [None, noise.public_of(os.urandom(32))], ids=["none", "another"])
def test_a_client_without_the_right_key_gets_no_further(rig: EdgeRig, key: bytes | None) -> None:
    with direct(str(rig.edge.address), key) as client:
        assert UP not in drive(rig, client, lambda seen: seen.count(REFUSED) >= 2)
        assert not client.send([call(1)])


def test_a_client_with_a_key_does_not_talk_in_the_open() -> None:
    rig = EdgeRig()
    try:
        with direct(str(rig.edge.address)) as client:
            assert UP not in drive(rig, client, lambda seen: REFUSED in seen)
    finally:
        rig.close()


def test_zeromqs_own_library_gets_no_further_with_curve_or_without(rig: EdgeRig) -> None:
    for curve in (False, True):
        with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
            dealer.linger = 0
            if curve:
                dealer.curve_publickey, dealer.curve_secretkey = zmq.curve_keypair()
                dealer.curve_serverkey = zmq.curve_keypair()[0]
            dealer.connect(f"tcp://{rig.edge.address}")
            dealer.send(call(1))
            end = time.monotonic() + 0.5
            while time.monotonic() < end:
                assert rig.turn(0.01) == []
            assert not dealer.poll(0)


_LOST = noise_transport.CALLS + b"\x00\x30" + os.urandom(48)


@pytest.mark.parametrize(
    "said",
    [HANDSHAKE, noise_transport.CALLED[:12] + bytes(52), _LOST, noise_transport.CALLS + bytes(50),
     noise_transport.CALLS + b"\xff\xff" + bytes(70_000)],
    ids=["open", "no mechanism", "garbage", "low order", "long"],
)  # fmt: skip
def test_garbage_ends_its_connection_and_no_other(rig: EdgeRig, said: bytes) -> None:
    with connected(rig) as client:
        stranger = rig.raw(said)
        rig.until(stranger.gone)
        assert client.send([call(1)])
        assert len(rig.take(1)) == 1


def test_a_changed_record_ends_its_connection(rig: EdgeRig) -> None:
    with socket.create_connection(rig.edge.address, PATIENCE_S) as made:
        handshake = noise_transport.call(KEY, noise_transport.CALLED)
        made.sendall(noise_transport.CALLS + noise_transport.say(handshake))
        came = b""
        end = time.monotonic() + PATIENCE_S
        while len(came) < zmtp.GREETING_BYTES + noise_transport.HANDSHAKE_BYTES:
            assert time.monotonic() < end
            rig.turn(0.005)
            made.setblocking(False)
            try:
                came += made.recv(1 << 16)
            except BlockingIOError:
                pass
            made.settimeout(PATIENCE_S)
        assert came.startswith(noise_transport.CALLED)
        start = zmtp.GREETING_BYTES
        noise_transport.hear(handshake, came[start : start + noise_transport.HANDSHAKE_BYTES])
        sealer = noise_transport.Sealer(handshake.split()[0], noise_transport.scratch())
        ready = b"".join(sealer.seal([zmtp.ready(b"DEALER")]))
        good = b"".join(sealer.seal(zmtp.message([call(1)])))
        made.sendall(ready + good)
        assert len(rig.take(1)) == 1
        made.sendall(good)  # a replayed request is refused
        rig.until(lambda: rig.open == 0)

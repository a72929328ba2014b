"""Attacks on a node that others use: each is refused or survived, and nothing is lost.

More attacks are in test_security (tokens, certificates, plain text), test_frames (garbage),
test_slow_reader, and in the contract tests of the HTTP and the peer port. ``python -m tests.fuzz``
continues where these end.
"""

from __future__ import annotations

import json
import resource
import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import grpc
import pytest

import weft
from tests.contract.served import eventually
from tests.process.live_node import LiveNode
from tests.process.test_frames import HANDSHAKE, HTTP2
from tests.process.wire_client import Refused, WireClient
from weft.limits import POP_BYTES_MAX
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc, wire

pytestmark = pytest.mark.process

PRECIOUS: Final = [b"precious %d" % number for number in range(100)]
IDLE: Final = 5000
GROWTH_BYTES_MAX: Final = 200 << 20
#: One pop of a stream is 8 MiB, and exists in the node as frames, as messages and as bytes in
#: flight, in pages; beside them is the cache of bodies, which a push of that size fills.
STREAM_BYTES_MAX: Final = 6 * POP_BYTES_MAX
CACHE_BYTES: Final = 64 << 20


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveNode]:
    with LiveNode(tmp_path_factory.mktemp("attacks") / "node").start() as running:
        with WireClient(running.zmq) as client:
            client.create("precious")
            client.push("precious", 1, 1, PRECIOUS)
        yield running
        assert "Traceback" not in running.log, running.log
        assert running.stop() == 0


@pytest.fixture(autouse=True)
def intact(node: LiveNode) -> Iterator[None]:
    yield
    with WireClient(node.zmq) as client:
        answer, frames = client.ask(wire.Peek("precious", 1000))
        assert isinstance(answer, wire.Peeked)
        assert [b for frame in frames for b in wire.decode_payload(frame).bodies] == PRECIOUS


def ports(node: LiveNode) -> dict[str, str]:
    address = json.loads((node.data / "address.json").read_text())
    host, _ = node.zmq.rsplit(":", 1)
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = _inodes(node.process.pid)
    mine = {int(line[1].rpartition(":")[2], 16) for line in listening if line[9] in inodes}
    known = {int(address[name].rpartition(":")[2]) for name in ("grpc", "zmq", "http")}
    peer = {int(line[1].rpartition(":")[2], 16) for line in listening if line[3] == "0A"} & mine
    (peer_port,) = peer - known
    return {name: address[name] for name in ("grpc", "zmq", "http")} | {
        "peer": f"{host}:{peer_port}"
    }


def _inodes(pid: int) -> set[str]:
    found = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(link.readlink())
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


def connect(address: str) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=100)


def test_five_thousand_idle_connections(node: LiveNode) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < IDLE + 1000:
        pytest.skip(f"a process may open {hard} files here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, IDLE + 1000)), hard))
    before, places = node.own_bytes(), list(ports(node).values())
    idle: list[socket.socket] = []
    try:
        for number in range(IDLE):
            made = connect(places[number % len(places)])
            idle.append(made)
            if number % 3 == 0:  # some have begun, and send no more
                made.sendall(HANDSHAKE if number % len(places) == 1 else HTTP2[: number % 24])
        began = time.monotonic()
        with weft.connect(node.grpc) as client:
            client.create_queue("busy")
            queue = client.queue("busy")
            for number in range(200):
                queue.push(b"%d" % number)
            while messages := queue.pop_many(100):
                queue.ack_many(messages)
        with grpc.insecure_channel(node.grpc) as channel:
            stub = weft_pb2_grpc.QueueStub(channel)  # type: ignore[no-untyped-call]
            stub.DescribeQueue(pb.DescribeQueueRequest(queue="precious"), timeout=100)
        took = time.monotonic() - began
        grown = node.own_bytes() - before
        print(f"{IDLE} idle connections: 400 verbs in {took:.1f} s, {grown >> 20} MiB more")
        assert took < 100
        assert grown < GROWTH_BYTES_MAX
    finally:
        for made in idle:
            made.close()
    eventually(lambda: len(_inodes(node.process.pid)) < 200)


NAMES: Final = [
    "../precious", "..", "/etc/passwd", "a/b", "precious/../other", "precious\0", "a\nb", "",
    "C:\\x", "%2e%2e%2f", "ü", "x" * 81, "precious ", ".\u202e",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_like_a_path_is_no_name(node: LiveNode, name: str) -> None:
    before = sorted(path.name for path in node.data.parent.iterdir())
    with WireClient(node.zmq) as client:
        with pytest.raises(Refused, match="INVALID_ARGUMENT"):
            client.create(name)
        with pytest.raises(Refused, match=r"INVALID_ARGUMENT|QUEUE_NOT_FOUND"):
            client.push(name, 1, 1, [b"x"])
    with grpc.insecure_channel(node.grpc) as channel:
        stub = weft_pb2_grpc.QueueStub(channel)  # type: ignore[no-untyped-call]
        with pytest.raises(grpc.RpcError, match="queue name"):
            stub.CreateQueue(pb.CreateQueueRequest(queue=name), timeout=100)
    with weft.connect(node.grpc) as own, pytest.raises(weft.InvalidArgument):
        own.queue(name)
    assert sorted(path.name for path in node.data.parent.iterdir()) == before


def test_a_receipt_that_is_replayed_settles_nothing(node: LiveNode) -> None:
    with WireClient(node.zmq) as honest, WireClient(node.zmq) as thief:
        honest.create("lent")
        honest.push("lent", 2, 1, [b"a"])
        (first,) = honest.pop("lent", 1, lease_ms=200)
        stolen = first.receipt()
        eventually(lambda: honest.describe("lent").ready == 1)  # the lease has expired
        (second,) = honest.pop("lent", 1, lease_ms=60_000)
        for verb in (thief.ack, honest.ack):
            assert verb("lent", [stolen]) == wire.Settled(0, 0, [0])
        assert isinstance(thief.ask(wire.Nack("lent", [stolen]))[0], wire.Settled)
        assert honest.describe("lent").leased == 1, "somebody else's lease was ended"
        assert honest.ack("lent", [second.receipt()]).done == 1
        assert thief.ack("lent", [second.receipt()]) == wire.Settled(0, 1, [])  # done, once
        near = second.receipt()
        guessed = wire.Receipt(near.partition, near.lsn, near.nonce ^ 1)
        assert thief.ack("lent", [guessed]) == wire.Settled(0, 0, [0])


HUGE: Final = {
    "zmq": HANDSHAKE + b"\x02" + struct.pack(">Q", 1 << 40) + bytes(1000),
    "peer": HANDSHAKE + b"\x02" + struct.pack(">Q", 1 << 40) + bytes(1000),
    "grpc": HTTP2 + b"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + bytes(1000),
    "http": b"GET /" + b"x" * (1 << 20) + b" HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("port", HUGE)
def test_what_is_too_large_is_cut_off_and_what_ends_early_is_let_go(
    node: LiveNode, port: str
) -> None:
    place, before = ports(node)[port], node.own_bytes()
    with connect(place) as attacker:
        try:
            attacker.sendall(HUGE[port])
            while attacker.recv(65_536):
                pass  # an answer, and then the end: the node does not wait for a terabyte
        except (ConnectionResetError, BrokenPipeError):
            pass
    for length in range(0, 200, 7):
        with connect(place) as cut_short:
            cut_short.sendall(HUGE[port][:length])
    assert node.own_bytes() - before < 50 << 20


def test_a_grpc_stream_that_is_never_read(node: LiveNode) -> None:
    with weft.connect(node.grpc) as client:
        client.create_queue("large")
        client.queue("large").push_many([bytes(1 << 20)] * 100)
        before = node.own_bytes()
        options = [("grpc.max_receive_message_length", 1 << 26)]
        with grpc.insecure_channel(node.grpc, options=options) as channel:
            stub = weft_pb2_grpc.QueueStub(channel)  # type: ignore[no-untyped-call]
            streams = [
                stub.Consume(pb.ConsumeRequest(queue="large", limit=10, prefetch=1000))
                for _ in range(5)
            ]
            time.sleep(2)
            assert node.own_bytes() - before < len(streams) * STREAM_BYTES_MAX + CACHE_BYTES
            client.queue("precious").stats()
            for stream in streams:
                stream.cancel()
        eventually(lambda: client.queue("large").stats().ready == 100)

"""Unary pushes, pops and acks over gRPC: the node's calls of Python for each, and its writes.

The client writes HTTP/2 frames by hand: nothing but the calls reaches the node, one call alone or
`AT_ONCE` of them in one segment, which the node reads in one round. The calls of Python are counted
for each; the writes are those of the round.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import hpack

from tests.unit.http2_client import frames
from weft.proto import weft_pb2 as pb
from weft.transport import http2_frames as h2
from weft.transport.grpc_messages import PREFIX_BYTES, prefix

from .inside import Inside, opened
from .operations import BODY, Counts, low

AT_ONCE: Final = 32
_QUEUE: Final = "costs"
_CALLS: Final = "Python calls, node"
_WARM_UP: Final = 10
_TIMES: Final = 60
_ANSWER_S: Final = 60.0


class FrameClient:
    """A gRPC client of one connection, without threads and timers."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=_ANSWER_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._encoder, self._decoder = hpack.Encoder(), hpack.Decoder()
        self._next = 1
        self._rest = b""
        self._socket.sendall(
            h2.PREFACE
            + h2.settings({h2.INITIAL_WINDOW_SIZE: h2.NUMBER_MAX})
            + h2.window_update(0, h2.NUMBER_MAX - h2.WINDOW_DEFAULT)
        )

    def call(self, method: str, *requests: Any) -> list[bytes]:
        """The response messages of calls that are sent with one write, in their order."""
        numbers = range(self._next, self._next + 2 * len(requests), 2)
        self._next = numbers.stop
        self._socket.sendall(
            b"".join(map(self._framed, [method] * len(requests), numbers, requests))
        )
        answers = dict.fromkeys(numbers, b"")
        missing = set(numbers)
        while missing:
            self._rest += self._socket.recv(1 << 16)
            whole = _whole(self._rest)
            for frame in frames(self._rest[:whole]):
                if frame.kind == h2.DATA:
                    answers[frame.number] += frame.payload
                elif frame.kind == h2.HEADERS:
                    fields = dict(self._decoder.decode(frame.payload, raw=True))
                    assert fields.get(b"grpc-status", b"0") == b"0", fields
                    if frame.flags & h2.END_STREAM:
                        missing.remove(frame.number)
            self._rest = self._rest[whole:]
        return [answers[number][PREFIX_BYTES:] for number in numbers]

    def _framed(self, method: str, number: int, request: Any) -> bytes:
        fields = [
            (":method", "POST"), (":scheme", "http"), (":path", f"/weft.v1.Queue/{method}"),
            (":authority", "costs"), ("content-type", "application/grpc"), ("te", "trailers"),
            # As from a client with a deadline for each call: another value each time.
            ("grpc-timeout", f"{50_000_000 + number}u"),
        ]  # fmt: skip
        message = request.SerializeToString()
        return h2.frame(
            h2.HEADERS, h2.END_HEADERS, number, self._encoder.encode(fields)
        ) + h2.frame(h2.DATA, h2.END_STREAM, number, prefix.pack(0, len(message)) + message)

    def close(self) -> None:
        self._socket.close()


def _whole(data: bytes) -> int:
    """The length of the complete frames."""
    place = 0
    while len(data) - place >= h2.HEADER_BYTES:
        stop = place + h2.HEADER_BYTES + (h2.frame_header.unpack_from(data, place)[0] >> 8)
        if stop > len(data):
            break
        place = stop
    return place


def measure(data: Path) -> dict[str, float]:
    with opened(data, relayed=False, native=True) as inside:
        client = FrameClient(inside.address)
        try:
            client.call("CreateQueue", pb.CreateQueueRequest(queue=_QUEUE))
            return _run(inside, client, 1, "") | _run(inside, client, AT_ONCE, f" of {AT_ONCE}")
        finally:
            client.close()


def _run(inside: Inside, client: FrameClient, count: int, word: str) -> dict[str, float]:
    """The low value of each figure over all turns: others met a timer or a read in two parts."""
    receipts: list[bytes] = []

    def push() -> None:
        message = pb.OutMessage(body=BODY)
        request = pb.PushRequest(queue=_QUEUE, messages=[message])
        assert all(client.call("Push", *[request] * count))

    def pop() -> None:
        answers = client.call("Pop", *[pb.PopRequest(queue=_QUEUE)] * count)
        for answer in answers:
            (message,) = pb.PopResponse.FromString(answer).messages
            assert message.body == BODY
            receipts.append(message.receipt)

    def ack() -> None:
        requests = [pb.AckRequest(queue=_QUEUE, receipts=[each]) for each in receipts]
        receipts.clear()
        for answer in client.call("Ack", *requests):
            assert pb.SettleResponse.FromString(answer).done == 1

    steps: dict[str, Callable[[], None]] = {"push": push, "pop": pop, "ack": ack}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in steps}
    for turn in range(_WARM_UP + _TIMES):
        for name, step in steps.items():
            before = _counts(inside)
            step()
            after = _counts(inside)
            if turn >= _WARM_UP:
                found[name].append({what: after[what] - before[what] for what in before})
    return {
        f"gRPC {name}{word}: {what}": low([each[what] for each in turns])
        / (count if what == _CALLS else 1)
        for name, turns in found.items()
        for what in turns[0]
    }


def _counts(inside: Inside) -> Counts:
    store = inside.store
    return {
        _CALLS: inside.in_node.calls,
        "store writes": store.writes,
        "store writes, synced": store.synced,
    }

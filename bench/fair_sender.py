"""Senders of pre-encoded pushes: a node is saturated although clients are written in Python.

Encoding a push costs a client as much as executing the push costs the node, so the pushes are
encoded before the clock starts. One thread serves all connections: each queue has one connection,
with a window of unanswered pushes, or with a rate. Answers are counted, not decoded, apart from
refusals.
"""

from __future__ import annotations

import random
import selectors
import socket
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Final

from weft.proto import wire
from weft.transport import zmtp

#: Encoded pushes of one queue; when all are sent, the next are encoded, as another producer's: the
#: node recognises a repeated push.
ENCODED: Final = 1024
_READY: Final = zmtp.ready(b"DEALER")
_RECEIVE_BYTES: Final = 1 << 18
_LATENCIES_MAX: Final = 1_000_000


@dataclass
class Load:
    """The pushes to one queue."""

    queue: str
    size: int
    #: Messages in a push.
    count: int = 1
    #: Unanswered pushes, at most.
    window: int = 64
    #: Pushes per second; 0: as many as the window admits.
    rate: float = 0.0
    #: Pushes answered, and refused as OVERLOADED.
    done: int = 0
    refused: int = 0
    latencies_s: list[float] = field(default_factory=list)


class Sender:
    """One connection."""

    def __init__(self, address: str, load: Load, producer: int) -> None:
        host, _, port = address.rpartition(":")
        self.load = load
        self.socket = socket.create_connection((host, int(port)))
        self.socket.sendall(zmtp.GREETING + _READY)
        self._greeting = 0
        self._reader = zmtp.FrameReader(1 << 24)
        self.producer = producer
        self._payload = wire.encode(wire.Payload([b"x" * load.size] * load.count))
        self._encoded: list[bytes] = []
        self._encode()
        self._sent_at: dict[int, float] = {}
        self._out: deque[memoryview] = deque()
        self._due = time.perf_counter()
        self.socket.setblocking(False)

    @property
    def waits_for_room(self) -> bool:
        return bool(self._out)

    def send(self, now: float) -> None:
        """Sends as many pushes as the window and the rate admit."""
        load = self.load
        while len(self._sent_at) < load.window and not self._out:
            if load.rate:
                if now < self._due:
                    break
                self._due = max(self._due + 1 / load.rate, now - 1)
            if self._next == ENCODED:
                self.producer += 1 << 20
                self._encode()
            self._sent_at[self._next + 1] = now
            self._out.append(memoryview(self._encoded[self._next]))
            self._next += 1
            self.flush()

    def flush(self) -> None:
        while self._out:
            try:
                sent = self.socket.send(self._out[0])
            except BlockingIOError:
                return
            if sent < len(self._out[0]):
                self._out[0] = self._out[0][sent:]
                return
            self._out.popleft()

    def receive(self, now: float) -> None:
        try:
            data = self.socket.recv(_RECEIVE_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionError("the node closed the connection")
        if self._greeting < zmtp.GREETING_BYTES:
            lacks = zmtp.GREETING_BYTES - self._greeting
            self._greeting += len(data[:lacks])
            data = data[lacks:]
        self._reader.feed(data)
        self._reader.commands = []
        messages, self._reader.messages = self._reader.messages, []
        for frame, *_ in messages:
            reply = wire.decode_reply(frame)
            sent_at = self._sent_at.pop(reply.rid, None)
            if sent_at is None:
                continue
            if isinstance(reply.answer, wire.Pushed):
                self.load.done += 1
                if len(self.load.latencies_s) < _LATENCIES_MAX:
                    self.load.latencies_s.append(now - sent_at)
            else:
                self.load.refused += 1

    def _encode(self) -> None:
        load = self.load
        self._encoded.clear()
        for number in range(ENCODED):
            push = wire.Push(load.queue, self.producer, number, load.count)
            call = wire.encode(wire.Call(wire.WIRE_VERSION, number + 1, push, ""))
            self._encoded.append(b"".join(zmtp.message([call, self._payload])))
        self._next = 0


def run(address: str, loads: list[Load], seconds: float) -> None:
    """Sends for some seconds; the results are in the loads."""
    first = random.getrandbits(40)
    senders = [Sender(address, load, first + number) for number, load in enumerate(loads)]
    with selectors.DefaultSelector() as selector:
        for sender in senders:
            selector.register(sender.socket, selectors.EVENT_READ, sender)
        until = time.perf_counter() + seconds
        while (now := time.perf_counter()) < until:
            for sender in senders:
                sender.send(now)
            writing = [sender for sender in senders if sender.waits_for_room]
            for key, _ in selector.select(0.0005 if writing else 0.001):
                key.data.receive(time.perf_counter())
            for sender in writing:
                sender.flush()
    for sender in senders:
        sender.socket.close()

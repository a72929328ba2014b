"""A node's wire without a node: a ROUTER socket in a thread that does as a test says.

`on_call` gets each request and gives the answers; it may give none, two, or rubbish. `drop` cuts
the connections, `listen` opens the same port again.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType

import zmq

from weft.node_process import unused_ports
from weft.proto import wire

Frames = Sequence[bytes]
Handler = Callable[[wire.Call, Frames], list[list[bytes]]]


def reply(rid: int, answer: wire.AnyAnswer, *payload: bytes) -> list[bytes]:
    return [wire.encode(wire.Reply(rid, answer)), *payload]


def lent(nonce: int, count: int = 1) -> wire.Lent:
    return wire.Lent(3, 4, nonce, 0, count, 5, 6, 1, 7, 30_000)


class Peer:
    def __init__(self, on_call: Handler) -> None:
        self.on_call = on_call
        #: Every call that arrived, in order.
        self.calls: list[wire.Call] = []
        self.arrived: queue.SimpleQueue[wire.Call] = queue.SimpleQueue()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def listen(self) -> Peer:
        bound = threading.Event()
        self._stop.clear()
        self._thread = threading.Thread(target=self._serve, args=(bound,))
        self._thread.start()
        assert bound.wait(100)
        return self

    def drop(self) -> None:
        """Stops listening and cuts every connection."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        self.drop()
        self._context.term()

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _bind(self, socket: zmq.Socket[bytes]) -> None:
        # A socket before this one may still be closing, in ZeroMQ's own thread. The port is one
        # that the system gives to no client meanwhile.
        for _ in range(5000):
            try:
                socket.bind(f"tcp://127.0.0.1:{self.port or unused_ports(1)[0]}")
            except zmq.ZMQError as error:
                if error.errno != zmq.EADDRINUSE:
                    raise
                time.sleep(0.01)
            else:
                return
        raise AssertionError(f"port {self.port} is taken")

    def _serve(self, bound: threading.Event) -> None:
        socket = self._context.socket(zmq.ROUTER)
        socket.linger = 0
        self._bind(socket)
        endpoint = socket.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(endpoint, bytes)
        self.port = int(endpoint.rstrip(b"\0").rsplit(b":", 1)[1])
        bound.set()
        while not self._stop.is_set():
            if not socket.poll(10):
                continue
            peer, first, *payload = socket.recv_multipart()
            call = wire.decode_call(first)
            self.calls.append(call)
            self.arrived.put(call)
            for frames in self.on_call(call, payload):
                socket.send_multipart([peer, *frames])
        socket.close()

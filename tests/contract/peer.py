"""A node's wire endpoint without a node: a scripted ROUTER socket in a thread.

`on_call` gets each request and returns the answers: none, two, or garbage. `drop` cuts the
connections, `listen` opens the same port again.
"""

from __future__ import annotations

import errno
import queue
import socket
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
        #: Every received call, in order.
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
        """Stop listening and cut every connection."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
            self._wait_until_refused()

    def _wait_until_refused(self) -> None:
        """ZeroMQ closes a socket in a thread of its own, and accepts connections until then."""
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", self.port))
                except OSError as error:
                    if error.errno != errno.EADDRINUSE:
                        raise
                else:
                    return
            time.sleep(0.001)
        raise AssertionError(f"port {self.port} is still open")

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

    def _bind(self, router: zmq.Socket[bytes]) -> None:
        # A port that the system gives to no client meanwhile.
        for _ in range(5000):
            try:
                router.bind(f"tcp://127.0.0.1:{self.port or unused_ports(1)[0]}")
            except zmq.ZMQError as error:
                if error.errno != zmq.EADDRINUSE:
                    raise
                time.sleep(0.01)
            else:
                return
        raise AssertionError(f"port {self.port} is taken")

    def _serve(self, bound: threading.Event) -> None:
        router = self._context.socket(zmq.ROUTER)
        router.linger = 0
        self._bind(router)
        endpoint = router.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(endpoint, bytes)
        self.port = int(endpoint.rstrip(b"\0").rsplit(b":", 1)[1])
        bound.set()
        while not self._stop.is_set():
            if not router.poll(10):
                continue
            peer, first, *payload = router.recv_multipart()
            call = wire.decode_call(first)
            self.calls.append(call)
            self.arrived.put(call)
            for frames in self.on_call(call, payload):
                router.send_multipart([peer, *frames])
        router.close()

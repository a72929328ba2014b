"""A real node in this process, instrumented: its store, its wire, its Python.

The node's thread, its gRPC edge, LevelDB with fsync, ZeroMQ over TCP and the client are the real
ones. A counting store sits between node and store; a relay between client and node reads the wire.
`sys.setprofile` counts Python's calls in the caller's thread and in the node's: functions of Python
and of C alike. The calls stand in for instructions, which a virtual machine may not be able to
count, and do not depend on a clock.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import weft
from weft.persistence.directory import DataDirectory
from weft.persistence.store import Change, Store
from weft.server.config import Config
from weft.server.edges.grpc_edge import GrpcEdge
from weft.server.edges.native_grpc_edge import NativeGrpcEdge
from weft.server.node.node import Node

from .operations import Counts, Plan, patient, run, transaction
from .relay import Relay

#: The node listens at one loopback address and advertises another, the relay's.
_NODE, _RELAY = "127.0.0.1", "127.0.0.2"


class CountingStore:
    """A Store that forwards and counts every call."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.path = store.path
        self.scan, self.compact = store.scan, store.compact
        self.size_bytes, self.close, self.shed = store.size_bytes, store.close, store.shed
        self.writes = self.synced = self.puts = self.deletes = self.bytes = self.reads = 0

    def get(self, key: bytes) -> bytes | None:
        self.reads += 1
        return self._store.get(key)

    def get_parted(self, key: bytes, at: int) -> tuple[bytes, bytes] | None:
        self.reads += 1
        return self._store.get_parted(key, at)

    def write(self, changes: list[Change], *, sync: bool) -> None:
        self.writes += 1
        self.synced += sync
        for key, value in changes:
            self.bytes += len(key) + len(value or b"")
            if value is None:
                self.deletes += 1
            else:
                self.puts += 1
        self._store.write(changes, sync=sync)


class Profile:
    """Counts the calls of the threads in which it is installed."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            self.calls += 1


class Inside:
    """The node and its counters."""

    def __init__(self, data: Path, *, relayed: bool = True, native: bool = False) -> None:
        """`native`: gRPC is served in the node's thread, and otherwise by grpcio's server."""
        config = Config(
            data=str(data),
            listen=f"{_NODE}:0",
            zmq_listen=f"{_NODE}:0",
            advertise=_RELAY if relayed else _NODE,
            awake_us=0,
        )
        self._directory = DataDirectory.open(config.data)
        self.store = CountingStore(self._directory.open_store())
        self.node = Node(config, self._directory, self.store)
        self.in_node, self.in_client = Profile(), Profile()
        threading.setprofile(self.in_node)
        try:
            self.node.start()
        finally:
            threading.setprofile(None)
        port = self.node.zmq_address.port
        self.relay = Relay((_RELAY, port if relayed else 0), (_NODE, port))
        self._edge = NativeGrpcEdge(config, self.node) if native else GrpcEdge(config, self.node)

        def tell(bound: object) -> None:
            self.node.grpc_address = str(bound)

        self.address = str(self._edge.start(on_bound=tell))

    def calls(self) -> Counts:
        return {
            "Python calls, client": self.in_client.calls,
            "Python calls, node": self.in_node.calls,
        }

    def traffic(self) -> Counts:
        store, sent, answered = self.store, self.relay.sent, self.relay.answered
        return {
            "messages on the wire": sent.messages + answered.messages,
            "frames on the wire": sent.frames + answered.frames,
            "bytes sent": sent.bytes,
            "bytes answered": answered.bytes,
            "store writes": store.writes,
            "store writes, synced": store.synced,
            "keys put": store.puts,
            "keys deleted": store.deletes,
            "keys read": store.reads,
            "bytes to the store": store.bytes,
        }

    def close(self) -> None:
        self._edge.stop(1)
        self.node.stop()
        self.relay.__exit__(None, None, None)
        self.store.close()
        self._directory.close()


@contextmanager
def opened(data: Path, *, relayed: bool = True, native: bool = False) -> Iterator[Inside]:
    inside = Inside(data, relayed=relayed, native=native)
    try:
        yield inside
    finally:
        inside.close()


def measure(data: Path, plan: Plan) -> dict[str, float]:
    with patient(), opened(data) as inside, weft.connect(inside.address) as client:
        client.create_queue("costs")
        queue = client.queue("costs")
        commit = transaction(client, plan)
        found = run(queue, inside.traffic, plan, commit)
        before = sys.getprofile()
        sys.setprofile(inside.in_client)
        try:
            return found | run(queue, inside.calls, plan, commit, one_by_one=True)
        finally:
            sys.setprofile(before)

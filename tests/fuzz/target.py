"""The target: two real nodes, a queue and a table that no garbage names, and their state.

A third node has an encrypted data path (`vault`). After every batch of cases all nodes must be
alive, without a traceback in their logs, ready, and with unchanged content.
"""

from __future__ import annotations

import json
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc
import zmq

import weft
from tests.process.wire_client import WireClient
from weft.persistence.node_keys import Keys, open_keys
from weft.testing import Cluster, cluster

from .vault import Vault, vault

PRECIOUS: Final = sorted(b"precious %d" % number for number in range(300))
VALUE: Final = b"do not lose"
#: More than any case pins for long.
GROWTH_BYTES_MAX: Final = 200 << 20


class Target:
    def __init__(self, made: Cluster, locked: Vault) -> None:
        self._cluster = made
        self.vault = locked
        self.node = made.node(0)
        address = json.loads((self.node.data / "address.json").read_text())
        self.ports: dict[str, str] = {
            "grpc": self.node.grpc, "zmq": self.node.zmq, "http": address["http"],
            "peer": self.node.peer, "sealed": locked.address,
        }  # fmt: skip
        self.key = open_keys(self.node.data).public
        self.insider: Keys = open_keys(made.node(1).data)
        self.cluster_id = str(json.loads((self.node.data / "node.json").read_text())["cluster"])
        self.insider_id = made.node(1).id
        self.zmq = WireClient(self.node.zmq)
        self.channel = grpc.insecure_channel(self.node.grpc)
        self._context = zmq.Context()
        self.peer: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        self.peer.linger = 0
        self.peer.curve_serverkey = self.key.encode()
        self.peer.curve_publickey = self.insider.public.encode()
        self.peer.curve_secretkey = self.insider.secret.encode()
        self.peer.connect(f"tcp://{self.node.peer}")
        with weft.connect(made.servers) as client:
            for name in ("precious", "scratch", "target"):
                client.create_queue(name)
            client.queue("precious").push_many(PRECIOUS)
            client.kv.insert("precious", VALUE)
        self._own_bytes = [self._memory(number) for number in range(2)]

    def intact(self) -> None:
        for number in range(2):
            node = self._cluster.node(number)
            assert node.running, node.log_tail()
            assert "Traceback" not in node.log.read_text(errors="replace"), node.log_tail()
            grown = self._memory(number) - self._own_bytes[number]
            assert grown < GROWTH_BYTES_MAX, f"node {number} has grown by {grown} bytes"
        self._cluster.settled()
        with weft.connect(self._cluster.servers) as client:
            found = sorted(message.body for message in client.queue("precious").peek(1000))
            assert found == PRECIOUS, f"{len(found)} messages of {len(PRECIOUS)} are there"
            assert client.kv.lookup("precious") == VALUE
        with urllib.request.urlopen(f"http://{self.ports['http']}/readyz", timeout=10) as answer:
            assert answer.status == 200
        self.vault.intact()

    def call(self, service: str, method: str, data: bytes) -> bytes:
        ask: Any = self.channel.unary_unary(f"/weft.v1.{service}/{method}")
        answer = ask(data, timeout=10)
        assert isinstance(answer, bytes)
        return answer

    def close(self) -> None:
        self.zmq.close()
        self.channel.close()
        self.peer.close()
        self._context.term()

    def _memory(self, number: int) -> int:
        process = self._cluster.node(number).process
        assert process is not None
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        (line,) = [line for line in status.splitlines() if line.startswith("RssAnon:")]
        return int(line.split()[1]) * 1024


@contextmanager
def target() -> Iterator[Target]:
    with (
        tempfile.TemporaryDirectory(prefix="weft-vault-") as folder,
        vault(Path(folder)) as locked,
        cluster(2, durability="os") as made,
    ):
        made.settled()
        found = Target(made, locked)
        try:
            found.intact()
            yield found
        finally:
            found.close()

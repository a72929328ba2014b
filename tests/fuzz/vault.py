"""A third node that is fuzzed: one with a certificate, whose data path is encrypted."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import weft
from tests.contract.authority import Authority
from tests.process.live_node import LiveNode
from weft.persistence.keys import open_keys
from weft.proto import sealed, zmtp
from weft.server.data_key import data_key

VALUE: Final = b"behind a lock"
GROWTH_BYTES_MAX: Final = 200 << 20
_CONNECT_S: Final = 5.0


class Vault:
    def __init__(self, node: LiveNode, ca: str) -> None:
        self._node = node
        self._ca = ca
        self._key = bytes.fromhex(data_key(open_keys(node.data)).public)
        self.address = node.zmq
        with weft.connect(node.grpc, tls=ca) as client:
            client.kv.insert("precious", VALUE)
        self._own_bytes = node.own_bytes()

    def intact(self) -> None:
        assert self._node.process.poll() is None, self._node.log[-2000:]
        assert "Traceback" not in self._node.log, self._node.log[-2000:]
        grown = self._node.own_bytes() - self._own_bytes
        assert grown < GROWTH_BYTES_MAX, f"it has grown by {grown} bytes"
        with weft.connect(self._node.grpc, tls=self._ca) as client:
            assert client.kv.lookup("precious") == VALUE

    def tell(self, said: list[bytes], flip: int | None) -> None:
        """Shakes hands as a client does, says this in sealed records, and perhaps changes a bit."""
        host, port = self.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=_CONNECT_S) as made:
            handshake = sealed.call(self._key, sealed.CALLED)
            made.sendall(sealed.CALLS + sealed.say(handshake))
            answer = b""
            while (lacks := zmtp.GREETING_BYTES + sealed.HANDSHAKE_BYTES - len(answer)) > 0:
                came = made.recv(lacks)
                assert came, "it does not shake hands"
                answer += came
            sealed.hear(handshake, answer[zmtp.GREETING_BYTES :])
            sealer = sealed.Sealer(handshake.split()[0], sealed.desk())
            data = bytearray(b"".join(b"".join(sealer.seal([each])) for each in said))
            if flip is not None and data:
                data[flip % len(data)] ^= 1 << flip % 8
            try:
                made.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                return  # it was thrown out before it had finished, rightly


@contextmanager
def vault(folder: Path) -> Iterator[Vault]:
    authority = Authority(folder)
    pair = authority.sign("server")
    with LiveNode(folder / "vault", tls_cert=pair.cert, tls_key=pair.key, durability="os") as node:
        yield Vault(node.start(), str(authority.pair.cert))

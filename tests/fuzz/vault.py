"""A third node to fuzz: with a certificate and an encrypted data path."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import weft
from tests.contract.authority import Authority
from tests.process.live_node import LiveNode
from weft.persistence.node_keys import open_keys
from weft.server.security.data_key import data_key
from weft.transport import noise_transport, zmtp

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
        """Do the handshake of a client, send the data in sealed records, and perhaps flip a bit."""
        host, port = self.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=_CONNECT_S) as made:
            handshake = noise_transport.call(self._key, noise_transport.CALLED)
            made.sendall(noise_transport.CALLS + noise_transport.say(handshake))
            answer = b""
            while (
                lacks := zmtp.GREETING_BYTES + noise_transport.HANDSHAKE_BYTES - len(answer)
            ) > 0:
                came = made.recv(lacks)
                assert came, "it does not shake hands"
                answer += came
            noise_transport.hear(handshake, answer[zmtp.GREETING_BYTES :])
            sealer = noise_transport.Sealer(handshake.split()[0], noise_transport.scratch())
            data = bytearray(b"".join(b"".join(sealer.seal([each])) for each in said))
            if flip is not None and data:
                data[flip % len(data)] ^= 1 << flip % 8
            try:
                made.sendall(data)
            except (BrokenPipeError, ConnectionResetError):
                return  # rightly disconnected before it had finished


@contextmanager
def vault(folder: Path) -> Iterator[Vault]:
    authority = Authority(folder)
    pair = authority.sign("server")
    with LiveNode(folder / "vault", tls_cert=pair.cert, tls_key=pair.key, durability="os") as node:
        yield Vault(node.start(), str(authority.pair.cert))

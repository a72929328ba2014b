"""The first bytes of a connection: the greetings of ZMTP and, with a key, the Noise handshake.

| received | sent next | then |
|---|---|---|
| nothing | `opening` | |
| greeting, without a key | READY | done |
| greeting, with a key | our part of the handshake | |
| the node's part of the handshake | READY, encrypted | done |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from weft.transport import noise_transport, zmtp

if TYPE_CHECKING:
    from weft.transport.noise import Handshake

_READY: Final = zmtp.ready(b"DEALER")


class ClientHandshake:
    """Takes the node's bytes and returns ours; touches no socket."""

    def __init__(self, key: bytes | None, reader: zmtp.FrameReader) -> None:
        """With the node's public `key`, encrypts the connection and verifies the node."""
        self._key = key
        self._noise: Handshake | None = None
        self._received = b""
        self._size = zmtp.GREETING_BYTES
        self.opening = zmtp.GREETING if key is None else noise_transport.CALLS
        self.done = False
        #: How to read and write what follows, when done; without a sealer, in plain.
        self.reader: zmtp.FrameReader | noise_transport.SealedReader = reader
        self.sealer: noise_transport.Sealer | None = None

    @property
    def lacks(self) -> int:
        """Number of bytes to receive next: a byte more would belong to the reader."""
        return self._size - len(self._received)

    def feed(self, data: bytes) -> bytes:
        """Takes received bytes; returns the bytes to send next. Raises ProtocolError."""
        self._received += data
        if self.lacks:
            return b""
        whole, self._received = self._received, b""
        if self._key is None:
            zmtp.check_greeting(whole)
        elif self._noise is None:
            zmtp.check_greeting(whole, noise_transport.MECHANISM)
            self._noise = noise_transport.call(self._key, whole)
            self._size = noise_transport.HANDSHAKE_BYTES
            return noise_transport.say(self._noise)
        else:
            noise_transport.hear(self._noise, whole)
            self._encrypt(self._noise)
        self.done = True
        return _READY

    def _encrypt(self, noise: Handshake) -> None:
        assert isinstance(self.reader, zmtp.FrameReader), "encrypted once"
        ours, theirs = noise.split()
        scratch = noise_transport.scratch()
        self.sealer = noise_transport.Sealer(ours, scratch)
        self.reader = noise_transport.SealedReader(theirs, self.reader, scratch)

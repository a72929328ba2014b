"""The first bytes of a client connection, at the node: greetings and, with a key, the handshake.

| received | sent next | then |
|---|---|---|
| nothing | `opening` | |
| greeting, without a key | READY | done |
| greeting, with a key | | |
| the client's part of the handshake | our part, then READY, encrypted | done |

The client's end is `client/transport/client_handshake.py`.
"""

from __future__ import annotations

from typing import Final

from weft.errors import ProtocolError
from weft.transport import noise_transport, zmtp

from .edge import FRAME_BYTES_MAX

_SIGNATURE: Final = zmtp.GREETING[:1]


class NodeHandshake:
    """Takes the client's bytes; touches no socket."""

    __slots__ = ("_received", "_scratch", "_secret", "answer", "done", "reader", "sealer")

    def __init__(self, secret: bytes | None, scratch: memoryview | None) -> None:
        """With a `secret` key the connection is encrypted, by way of `scratch`."""
        assert (secret is None) == (scratch is None)
        self._secret = secret
        self._scratch = scratch
        self._received = b""
        #: To be sent in plain when done, before READY.
        self.answer = b""
        self.done = False
        #: How to read and write what follows, when done; without a sealer, in plain.
        self.reader: zmtp.FrameReader | noise_transport.SealedReader = zmtp.FrameReader(
            FRAME_BYTES_MAX
        )
        self.sealer: noise_transport.Sealer | None = None

    @property
    def opening(self) -> bytes:
        return zmtp.GREETING if self._secret is None else noise_transport.CALLED

    def feed(self, data: bytes) -> bytes:
        """Takes received bytes; returns those after the handshake. Raises ProtocolError."""
        known = len(self._received)
        size = zmtp.GREETING_BYTES + (self._secret is not None) * noise_transport.HANDSHAKE_BYTES
        self._received = received = self._received + data[: size - known]
        if not received.startswith(_SIGNATURE):
            raise ProtocolError("the peer does not use ZeroMQ's protocol")
        greeting = received[: zmtp.GREETING_BYTES]
        if known < zmtp.GREETING_BYTES <= len(received):
            if self._secret is None:
                zmtp.check_greeting(greeting)
            else:
                zmtp.check_greeting(greeting, noise_transport.MECHANISM)
        if len(received) == size:
            if self._secret is not None:
                self._encrypt(self._secret, greeting, received[zmtp.GREETING_BYTES :])
            self.done = True
        return data[size - known :]

    def _encrypt(self, secret: bytes, greeting: bytes, record: bytes) -> None:
        assert self._scratch is not None
        handshake = noise_transport.called(secret, greeting)
        noise_transport.hear(handshake, record)
        self.answer = noise_transport.say(handshake)
        ours, theirs = handshake.split()
        self.sealer = noise_transport.Sealer(ours, self._scratch)
        reader = zmtp.FrameReader(FRAME_BYTES_MAX, _room_for)
        self.reader = noise_transport.SealedReader(theirs, reader, self._scratch)


def _room_for(size: int) -> bytearray | None:
    """Allocates the buffer of one frame; records are decrypted straight into the buffer.

    Nothing changes the buffer after decryption. A longer frame gets memory only as its bytes
    arrive: otherwise a peer could make the node allocate memory by announcing a large frame.
    """
    return bytearray(size) if size <= noise_transport.DESK_BYTES else None

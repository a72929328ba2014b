"""The ZAP authenticator: decides which CURVE keys may connect to the node's peer port.

ZeroMQ asks the authenticator about every new connection (ZAP, ZeroMQ RFC 27). The authenticator has
its own thread, because the node's thread may be writing to disk while a peer connects; the two
share one frozen set, replaced as a whole. An accepted connection carries its key as the user id,
and the user id, not the content of a frame, identifies the sender of a message.

An unknown key gets a temporary error (300) and not a refusal (400): the key may belong to a node
with an admission still on its way to this one, and ZeroMQ does not always retry after a 400.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Final

import zmq
from zmq.utils import z85

DOMAIN: Final = b"weft-peers"
_ENDPOINT: Final = "inproc://zeromq.zap.01"
_VERSION: Final = b"1.0"
_WELCOME: Final = (b"200", b"OK")
_COME_AGAIN: Final = (b"300", b"not in the view")
_REFUSED: Final = (b"400", b"not a CURVE peer of this domain")


class ZapAuthenticator:
    """Serves all CURVE servers of one context, and ends with the context."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._allowed: frozenset[bytes] = frozenset()
        self._socket: zmq.Socket[bytes] = context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(_ENDPOINT)
        # From now on only the thread uses the socket.
        self._thread = threading.Thread(target=self._run, name="weft-door", daemon=True)
        self._thread.start()

    def allow(self, keys: Iterable[str]) -> None:
        """Replaces the set of allowed public keys, in Z85. Open connections are not closed."""
        self._allowed = frozenset(key.encode() for key in keys)

    def join(self) -> None:
        """Waits for the thread, once the context is being terminated."""
        self._thread.join()

    def _run(self) -> None:
        with self._socket:
            try:
                while True:
                    self._socket.send_multipart(self._answer(self._socket.recv_multipart()))
            except zmq.ContextTerminated:
                pass  # the normal end of the thread

    def _answer(self, frames: list[bytes]) -> list[bytes]:
        if len(frames) != 7 or (frames[0], frames[2], frames[5]) != (_VERSION, DOMAIN, b"CURVE"):
            return [_VERSION, *frames[1:2], *_REFUSED, b"", b""]
        key = z85.encode(frames[6])
        if key in self._allowed:
            return [_VERSION, frames[1], *_WELCOME, key, b""]
        return [_VERSION, frames[1], *_COME_AGAIN, b"", b""]

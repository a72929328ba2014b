"""The doorkeeper: which CURVE keys may connect to this node's peer port.

ZeroMQ asks it about every new connection (ZAP, ZeroMQ RFC 27). It has a thread of its own, because
the node's thread may be at the disk while a peer knocks; the two share one frozen set, replaced as
a whole. Who is let in carries its key as the connection's user id, and that, not what a frame says,
is who sent a message.

An unknown key is told to come again (300) and not that it is refused (400): it may belong to a node
whose admission has not reached this one yet, and ZeroMQ does not always try again after a 400.
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


class Doorkeeper:
    """For all CURVE servers of one context. It ends when the context does."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._allowed: frozenset[bytes] = frozenset()
        self._socket: zmq.Socket[bytes] = context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(_ENDPOINT)
        # The socket is handed over here and used by that thread alone from now on.
        self._thread = threading.Thread(target=self._run, name="weft-door", daemon=True)
        self._thread.start()

    def allow(self, keys: Iterable[str]) -> None:
        """These public keys, in Z85, and no others. Open connections are not cut."""
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
                pass  # this is how it ends

    def _answer(self, frames: list[bytes]) -> list[bytes]:
        if len(frames) != 7 or (frames[0], frames[2], frames[5]) != (_VERSION, DOMAIN, b"CURVE"):
            return [_VERSION, *frames[1:2], *_REFUSED, b"", b""]
        key = z85.encode(frames[6])
        if key in self._allowed:
            return [_VERSION, frames[1], *_WELCOME, key, b""]
        return [_VERSION, frames[1], *_COME_AGAIN, b"", b""]

"""The ZAP authenticator: decides which CURVE keys may connect to the node's peer port.

ZeroMQ asks the authenticator about every new connection (ZAP, ZeroMQ RFC 27). The authenticator has
its own thread, because the node's thread may be writing to disk while a peer connects; the two
share one frozen set, replaced as a whole. An accepted connection carries its key as the user id,
and the user id, not the content of a frame, identifies the sender of a message.

| key | answer |
|---|---|
| allowed | accepted at once |
| unknown | held until the key is allowed, or for HOLD_S; then a temporary error (300) |
| any, while HELD_MAX requests are held | as above, and the oldest held request gets its error |

A member connects as soon as the port is open, and a new member as soon as it is admitted: its key
may still be on its way into the set. An error then would cost more than the wait, because ZeroMQ
tries again only after the handshake timeout. In these seconds this node would receive nothing from
the peer, and suspect it. The error is temporary (300) and not a refusal (400), because ZeroMQ does
not always retry after a 400.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Final

import zmq
from zmq.utils import z85

DOMAIN: Final = b"weft-peers"
#: An unknown key waits so long for its admission: less than the handshake timeout of the edge.
HOLD_S: Final = 1.5
#: More unknown keys at a time are strangers.
HELD_MAX: Final = 64
#: Interval of the checks for newly allowed keys, while requests are held.
_POLL_MS: Final = 10
_ENDPOINT: Final = "inproc://zeromq.zap.01"
_VERSION: Final = b"1.0"
_WELCOME: Final = (b"200", b"OK")
_COME_AGAIN: Final = (b"300", b"not in the view")
_REFUSED: Final = (b"400", b"not a CURVE peer of this domain")


class ZapAuthenticator:
    """Serves all CURVE servers of one context, and ends with the context."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self._allowed: frozenset[bytes] = frozenset()
        #: Held requests, oldest first: the time of the answer, the key, and the answer's envelope.
        self._held: deque[tuple[float, bytes, list[bytes]]] = deque()
        self._socket: zmq.Socket[bytes] = context.socket(zmq.ROUTER)
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
                    if self._socket.poll(_POLL_MS if self._held else None):
                        self._asked(self._socket.recv_multipart())
                    self._review(time.monotonic())
            except zmq.ContextTerminated:
                pass  # the normal end of the thread

    def _asked(self, frames: list[bytes]) -> None:
        """Handles a request: the sender, an empty frame, and the seven frames of ZAP."""
        sender, frames = frames[:2], frames[2:]
        reply = [*sender, _VERSION, *frames[1:2]]
        if len(frames) != 7 or (frames[0], frames[2], frames[5]) != (_VERSION, DOMAIN, b"CURVE"):
            self._answer(reply, _REFUSED)
        else:
            self._held.append((time.monotonic() + HOLD_S, z85.encode(frames[6]), reply))

    def _review(self, now: float) -> None:
        """Accepts the held requests with keys that are allowed by now, and ends the oldest."""
        allowed, waiting = self._allowed, self._held
        self._held = deque()
        for end, key, reply in waiting:
            if key in allowed:
                self._answer(reply, _WELCOME, key)
            elif now >= end:
                self._answer(reply, _COME_AGAIN)
            else:
                self._held.append((end, key, reply))
        while len(self._held) > HELD_MAX:
            self._answer(self._held.popleft()[2], _COME_AGAIN)

    def _answer(self, reply: list[bytes], status: tuple[bytes, bytes], user: bytes = b"") -> None:
        self._socket.send_multipart([*reply, *status, user, b""])

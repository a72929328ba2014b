"""TLS handshakes of new gRPC connections, in a thread of their own.

A handshake costs the node more than a hundred small calls, so the node's thread does none: a flood
of new connections would delay every client. The helper thread does the handshakes that are under
way, none of which blocks the others, and hands over the connections that speak HTTP/2. OpenSSL
works without the interpreter's lock.
"""

from __future__ import annotations

import logging
import os
import selectors
import socket
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from weft.server.observability.log import fields

from .edge import HANDSHAKE_MS

log = logging.getLogger(__name__)

#: Handshakes under way, and accepted connections that wait for one; one more closes the oldest of
#: the former, or is closed. A real client ends its handshake within milliseconds, so the oldest is
#: most likely one that is never completed.
HANDSHAKES_MAX: Final = 256
_ALPN: Final = "h2"


class _Stranger(NamedTuple):
    made: ssl.SSLSocket
    where: str
    number: int
    until: float


class TlsHandshakes:
    def __init__(
        self,
        context: Callable[[], ssl.SSLContext],
        on_done: Callable[[ssl.SSLSocket, str, int], None],
        on_failed: Callable[[int], None],
    ) -> None:
        """`context` gives the certificate for a new connection.

        `on_done` and `on_failed` are called in the helper thread.
        """
        self._context = context
        self._on_done = on_done
        self._on_failed = on_failed
        self._new: deque[tuple[socket.socket, str, int]] = deque()
        self._stopping = False
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="tls-handshakes", daemon=True)
        self._thread.start()

    def begin(self, made: socket.socket, where: str, number: int) -> bool:
        """Takes an accepted socket; False if too many wait for their handshake."""
        if len(self._new) >= HANDSHAKES_MAX:
            return False
        self._new.append((made, where, number))
        os.eventfd_write(self._wake, 1)
        return True

    def stop(self) -> None:
        """Ends the thread, and the connections whose handshake is under way."""
        self._stopping = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        os.close(self._wake)

    # --- the helper thread --------------------------------------------------------------------

    def _run(self) -> None:
        strangers: dict[int, _Stranger] = {}
        while not self._stopping:
            timeout_s = 1.0 if strangers else None
            for key, _ in self._selector.select(timeout_s):
                if key.fd == self._wake:
                    os.eventfd_read(self._wake)
                else:
                    self._step(strangers, strangers[key.fd])
            while self._new:
                self._meet(strangers, *self._new.popleft())
            now = time.monotonic()
            for stranger in [each for each in strangers.values() if each.until <= now]:
                self._fail(strangers, stranger, "no handshake")
        for stranger in list(strangers.values()):
            self._fail(strangers, stranger, "the node is stopping")
        self._selector.close()

    def _meet(
        self, strangers: dict[int, _Stranger], made: socket.socket, where: str, number: int
    ) -> None:
        if len(strangers) >= HANDSHAKES_MAX:
            self._fail(strangers, next(iter(strangers.values())), "too many handshakes")
        made.setblocking(False)
        try:
            wrapped = self._context().wrap_socket(
                made, server_side=True, do_handshake_on_connect=False
            )
        except (OSError, ValueError) as error:
            made.close()
            log.debug("connection closed", extra=fields(peer=where, why=str(error)))
            self._on_failed(number)
            return
        stranger = _Stranger(wrapped, where, number, time.monotonic() + HANDSHAKE_MS / 1000)
        strangers[wrapped.fileno()] = stranger
        self._selector.register(wrapped, selectors.EVENT_READ)
        self._step(strangers, stranger)

    def _step(self, strangers: dict[int, _Stranger], stranger: _Stranger) -> None:
        made = stranger.made
        try:
            made.do_handshake()
        except ssl.SSLWantReadError:
            self._selector.modify(made, selectors.EVENT_READ)
        except ssl.SSLWantWriteError:
            self._selector.modify(made, selectors.EVENT_WRITE)
        except (OSError, ValueError) as error:
            self._fail(strangers, stranger, str(error))
        else:
            if made.selected_alpn_protocol() != _ALPN:
                self._fail(strangers, stranger, "the client does not offer HTTP/2 (ALPN h2)")
                return
            self._forget(strangers, stranger)
            self._on_done(made, stranger.where, stranger.number)

    def _fail(self, strangers: dict[int, _Stranger], stranger: _Stranger, why: str) -> None:
        log.debug("connection closed", extra=fields(peer=stranger.where, why=why))
        self._forget(strangers, stranger)
        stranger.made.close()
        self._on_failed(stranger.number)

    def _forget(self, strangers: dict[int, _Stranger], stranger: _Stranger) -> None:
        self._selector.unregister(stranger.made)
        del strangers[stranger.made.fileno()]

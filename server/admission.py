"""Admission: how many connections the data path may have, where ZeroMQ's library has them.

ZeroMQ has no such limit, but it asks before it lets a connection in (ZAP, ZeroMQ RFC 27), with
CURVE or without. Those let in are counted here; that some have gone since, the kernel says
(``connections``), which is asked at most twice a second: there are never more than it has. A
connection that never gets so far as to be asked about is closed by ZeroMQ after `HANDSHAKE_MS`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

import zmq

from .log import fields

log = logging.getLogger(__name__)

DOMAIN: Final = b"weft-clients"
HANDSHAKE_MS: Final = 10_000
LOOK_S: Final = 0.5
_ENDPOINT: Final = "inproc://zeromq.zap.01"
_VERSION: Final = b"1.0"


class Admission:
    """For the server sockets of one context. It ends when the context does."""

    def __init__(
        self, context: zmq.Context[zmq.Socket[bytes]], most: int, count: Callable[[], int]
    ) -> None:
        self._most = most
        self._count = count
        self._open = 0
        self._look_at = 0.0
        #: Connections that were not let in.
        self.refused = 0
        self._socket: zmq.Socket[bytes] = context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(_ENDPOINT)
        self._thread = threading.Thread(target=self._run, name="weft-admission", daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Waits for the thread, once the context is being terminated."""
        self._thread.join()

    def _run(self) -> None:
        with self._socket:
            try:
                while True:
                    frames = self._socket.recv_multipart()
                    code, text = (b"200", b"OK") if self._admits() else (b"400", b"too many")
                    user = b"client" if code == b"200" else b""
                    self._socket.send_multipart([_VERSION, *frames[1:2], code, text, user, b""])
            except zmq.ContextTerminated:
                pass  # this is how it ends

    def _admits(self) -> bool:
        now = time.monotonic()
        if now >= self._look_at:
            # Among those are some that are not let in yet, or are just being closed.
            try:
                self._open = min(self._open, self._count())
            except (OSError, ValueError) as error:
                # Without the kernel's word it is a limit on all that ever came: rather none.
                log.warning("connections not counted", extra=fields(error=str(error)))
                self._open = 0
            self._look_at = now + LOOK_S
        if self._open >= self._most:
            if not self.refused or now >= self._look_at - LOOK_S / 2:
                log.warning("connections refused", extra=fields(open=self._open, most=self._most))
            self.refused += 1
            return False
        self._open += 1
        return True

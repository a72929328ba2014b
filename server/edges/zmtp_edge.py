"""The ZMTP edge: client connections, read and written by the node's own thread.

On the wire the edge is a ROUTER of ZeroMQ (`transport/zmtp.py`), for libzmq as well as for Weft's
own client. libzmq moves every message through an I/O thread, and on an idle machine waking threads
is most of the cost of a request; here the kernel wakes the thread that answers the request. If the
node has a key, connections are encrypted.

One epoll watches the listening socket and all connections, and the node's poller watches the epoll.
Connections with input form a round-robin queue; each yields one request and goes to the end, so no
client waits behind a flood of another. A non-empty queue at the end of a round keeps the epoll
ready (`_rest`), so the node does not sleep. Input on a connection can at worst end the connection.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from weft.errors import ProtocolError
from weft.limits import MIB
from weft.proto import wire
from weft.server.address import Address
from weft.server.observability.log import fields
from weft.server.security.access import Access
from weft.server.security.audit import Audit
from weft.transport import noise_transport, zmtp

from .edge import (
    BACKLOG,
    FLUSH_MS,
    HANDSHAKE_MS,
    ROUND_BYTES_MAX,
    ROUND_MESSAGES_MAX,
    Edge,
    EdgeCaller,
    Received,
    cannot_listen,
)
from .zmtp_connection import ZmtpConnection

log = logging.getLogger(__name__)

#: Events handled, and connections accepted, in one round.
_EVENTS_MAX: Final = 256
_ACCEPTS_MAX: Final = 64
#: A connection with so many bytes in its last pop response gets one pop per round. If all its pops
#: were loaded at once, the first response would leave the processor's cache before the send, and
#: each response would take memory from the kernel and return it. Small batches are not limited so.
BULKY_BYTES: Final = MIB
#: TCP keepalive of a silent connection.
_KEEPALIVE_IDLE_S: Final = 5
_KEEPALIVE_EVERY_S: Final = 2
_KEEPALIVE_PROBES: Final = 3
#: A peer that has acknowledged nothing for so long is gone; no pop waits longer either. On Linux
#: this value also overrides the keepalive settings for silent connections.
_UNTAKEN_MS_MAX: Final = 60_000
#: The kernel has no resources for another connection: pending connections wait in the backlog.
_NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_IN: Final = select.EPOLLIN
_OUT: Final = select.EPOLLOUT


class ZmtpEdge(Edge):
    def __init__(
        self,
        address: Address,
        access: Access | None = None,
        audit: Audit | None = None,
        connections_max: int = 1_000_000,
        secret: bytes | None = None,
    ) -> None:
        """With a `secret` key connections are encrypted; a token authenticates the client."""
        super().__init__(access, audit)
        self._secret = secret
        self._scratch = noise_transport.scratch() if secret is not None else None
        self._connections_max = connections_max
        #: Connections closed because of `connections_max`.
        self.refused = 0
        #: Messages leased by responses that were still buffered when their connection ended: no
        #: client has seen them. The node returns them to their queues and empties the list.
        self.undelivered: list[wire.Lent] = []
        self._listener = _listen(address)
        self.address = Address(address.host, self._listener.getsockname()[1])
        self._epoll = select.epoll()
        self.fd = self._epoll.fileno()
        self._listens = True
        self._epoll.register(self._listener, _IN)
        #: Always readable, and watched while the read queue is not empty.
        self._rest = os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._rests = False
        self._epoll.register(self._rest, 0)
        self._by_number: dict[int, ZmtpConnection] = {}
        self._by_fd: dict[int, ZmtpConnection] = {}
        #: Connections without a complete handshake, in order of arrival.
        self._strangers: dict[int, ZmtpConnection] = {}
        self._line: deque[ZmtpConnection] = deque()
        self._number = 0

    # --- a round --------------------------------------------------------------------------

    def receive(self) -> list[Received]:
        """Receives requests, up to the limits of one round."""
        line = self._line
        for fd, events in self._epoll.poll(0, _EVENTS_MAX):
            connection = self._by_fd.get(fd)
            if connection is None or events != _IN:
                self._handle_rare_event(fd, connection, events)
            elif not connection.due:
                connection.due = True
                line.append(connection)
        received: list[Received] = []
        later: list[ZmtpConnection] = []  # bulky connections that had their pop of this round
        taken_bytes = read_bytes = 0
        # Refused requests and non-requests count, too: a flood of pings is a flood.
        for _ in range(ROUND_MESSAGES_MAX):
            if not line or taken_bytes >= ROUND_BYTES_MAX or read_bytes >= ROUND_BYTES_MAX:
                break
            connection = line.popleft()
            if not connection.watched & _IN:  # closed, or stalled until the client reads
                connection.due = False
                continue
            if not connection.requests:
                try:
                    read_bytes += connection.read()
                except (OSError, EOFError, ProtocolError) as error:
                    self._drop(connection, str(error) or "it has gone")
                    continue
                if connection.number in self._strangers or connection.waiting:
                    self._note_read(connection)
            if connection.requests:
                frames = connection.requests.pop()
                taken_bytes += sum(map(len, frames))
                request = self._request(connection.number, frames, connection.where)
                if request is not None:
                    received.append(request)
                    if connection.bulky and type(request.request) is wire.Pop:
                        later.append(connection)
                        continue
            if connection.requests or connection.more:
                line.append(connection)
            else:
                connection.due = False
        line += later
        if self._rests == (not line):
            self._watch_rest(not self._rests)
        return received

    def _handle_rare_event(self, fd: int, connection: ZmtpConnection | None, events: int) -> None:
        """Handles every event that is not input on a connection."""
        if connection is not None:
            self._stir(connection, events)
        elif fd != self._rest:
            self._accept()

    def _note_read(self, connection: ZmtpConnection) -> None:
        """Records what a read changed: the handshake is complete, or the edge has replies to send.

        `receive` calls this method only for connections that may need it: the read of a request
        on an established connection costs no extra call.
        """
        if connection.welcome:
            self._strangers.pop(connection.number, None)
        if connection.waiting:
            self._watch(connection)

    def _watch_rest(self, watched: bool) -> None:
        """Keeps the epoll ready while the read queue is not empty."""
        self._rests = watched
        self._epoll.modify(self._rest, _IN if watched else 0)

    def send(self, caller: EdgeCaller, answer: wire.AnyAnswer, payload: Sequence[bytes]) -> bool:
        """True if the response was written, or is buffered until it can be."""
        connection = self._by_number.get(caller.peer)
        if connection is None:
            log.debug("answer not sent", extra=fields(why="the caller has gone"))
            return False
        reply = wire.encode(wire.Reply(caller.rid, answer))
        if payload:
            connection.bulky = sum(map(len, payload)) >= BULKY_BYTES
        if not connection.send(zmtp.message([reply, *payload])):
            # The client would wait for a lost response; on a new connection the client retries.
            self._drop(connection, "it does not read, or has gone")
            return False
        if connection.waiting:
            if type(answer) is wire.Popped and answer.lent:
                connection.note_lent(answer.lent)
            self._watch(connection)
        return True

    def held(self, number: int) -> int:
        """Bytes buffered for a connection; 0 after the connection has ended."""
        connection = self._by_number.get(number)
        return 0 if connection is None else connection.held

    def tend(self) -> None:
        """About once a second: drops connections with a late handshake, and accepts again."""
        if self._strangers:
            late = time.monotonic() - HANDSHAKE_MS / 1000
            for stranger in list(self._strangers.values()):
                if stranger.since > late:
                    break
                self._drop(stranger, "no handshake")
        if not self._listens:
            self._listens = True
            self._epoll.modify(self._listener, _IN)

    def close(self) -> None:
        """Closes all connections; waits up to `FLUSH_MS` for unsent responses."""
        self._listener.close()
        self._epoll.unregister(self._rest)
        until = time.monotonic() + FLUSH_MS / 1000
        for connection in list(self._by_number.values()):
            if connection.waiting:
                self._epoll.modify(connection.fd, _OUT)
            else:
                self._leave(connection)
        while self._by_number and (left := until - time.monotonic()) > 0:
            for fd, _ in self._epoll.poll(left):
                slow = self._by_fd[fd]
                try:
                    slow.flush()
                except OSError as error:
                    self._drop(slow, str(error))
                else:
                    if not slow.waiting:
                        self._leave(slow)
        for connection in list(self._by_number.values()):
            self._drop(connection, "it did not take its answers")
        self._epoll.close()
        os.close(self._rest)

    # --- connections ----------------------------------------------------------------------

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_MAX):
            try:
                made, where = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _NO_ROOM:
                    # The listener would stay ready all the time: do not watch it before the next
                    # `tend`.
                    log.warning("connections wait", extra=fields(why=error.strerror))
                    self._listens = False
                    self._epoll.modify(self._listener, 0)
                    return
                continue  # the pending connection has gone already
            if len(self._by_number) >= self._connections_max:
                made.close()
                self.refused += 1
                if self.refused & (self.refused - 1) == 0:  # a flood stays short in the log
                    log.warning(
                        "connections refused",
                        extra=fields(most=self._connections_max, times=self.refused),
                    )
                continue
            self._number += 1
            connection = ZmtpConnection(
                made, self._number, str(where[0]), time.monotonic(), self._secret, self._scratch
            )
            self._by_number[connection.number] = self._by_fd[connection.fd] = connection
            self._strangers[connection.number] = connection
            connection.watched = _IN
            self._epoll.register(connection.fd, _IN)
            try:
                connection.greet()
            except EOFError:
                self._drop(connection, "it has gone")

    def _stir(self, connection: ZmtpConnection, events: int) -> None:
        """Resumes writing to a writable connection, and drops a closed connection."""
        if events & _OUT and connection.waiting:
            try:
                connection.flush()
            except OSError as error:
                self._drop(connection, error.strerror or str(error))
                return
            self._watch(connection)
        if events & ~_OUT and connection.stalled:
            self._drop(connection, "it has gone")
        elif (events & ~_OUT or connection.requests) and not connection.due:
            connection.due = True
            self._line.append(connection)

    def _watch(self, connection: ZmtpConnection) -> None:
        """Updates the epoll event mask of a connection."""
        wanted = _OUT if connection.waiting else 0
        if not connection.stalled:
            wanted |= _IN
        if wanted != connection.watched:
            self._epoll.modify(connection.fd, wanted)
            connection.watched = wanted

    def _leave(self, connection: ZmtpConnection) -> None:
        self._forget(connection)
        connection.leave()

    def _drop(self, connection: ZmtpConnection, why: str) -> None:
        log.debug("connection closed", extra=fields(peer=connection.where, why=why))
        self.undelivered += connection.unsent_lent()
        self._forget(connection)
        connection.close()

    def _forget(self, connection: ZmtpConnection) -> None:
        self._epoll.unregister(connection.fd)
        del self._by_number[connection.number], self._by_fd[connection.fd]
        self._strangers.pop(connection.number, None)


def _listen(address: Address) -> socket.socket:
    """Opens the listening socket; accepted connections inherit the options set here."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_NODELAY, 1),
            (socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_S),
            (socket.TCP_KEEPINTVL, _KEEPALIVE_EVERY_S),
            (socket.TCP_KEEPCNT, _KEEPALIVE_PROBES),
            (socket.TCP_USER_TIMEOUT, _UNTAKEN_MS_MAX),
        ):
            listener.setsockopt(socket.IPPROTO_TCP, option, value)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        host = "0.0.0.0" if address.host == "*" else address.host
        where = socket.getaddrinfo(host, address.port, family, socket.SOCK_STREAM)[0][4]
        listener.bind(where)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise cannot_listen(address, error.strerror or str(error)) from None
    return listener

"""The direct edge: clients' connections, read and written by the node's own thread.

On the wire it is a ROUTER of ZeroMQ (`proto/zmtp.py`), for ZeroMQ's library at the other end as for
the client's own. That library moves every message through a thread of its own, and on an idle
machine waking threads is most of what a request costs; here the thread that answers a request is
the one that the kernel wakes for it. Where the node has a key, connections are sealed.

One epoll watches the listening socket and all connections, and the node's poller watches the epoll.
Connections that have something stand in a line; each gives one request and goes to its end, so that
nobody waits behind a flood. What a round leaves in the line keeps the epoll ready (`_rest`), so the
node does not sleep. Nothing that comes over a connection can do more than end it.
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
from weft.proto import sealed, wire, zmtp

from .access import Access
from .address import Address
from .audit import Audit
from .connection import Connection
from .edge import (
    BACKLOG,
    FLUSH_MS,
    HANDSHAKE_MS,
    ROUND_BYTES_MAX,
    ROUND_MESSAGES_MAX,
    Caller,
    Edge,
    Received,
    cannot_listen,
)
from .log import fields

log = logging.getLogger(__name__)

#: Connections that one round looks at, and that it lets in.
_EVENTS_MAX: Final = 256
_ACCEPTS_MAX: Final = 64
#: Who was last given so much by a pop has one pop in a round: if all that it has asked for were
#: loaded at once, the first of it would be out of the processor's cache before it is sent, and
#: memory would be asked of the kernel, and given back, for each. Small batches go on together.
BULKY_BYTES: Final = MIB
#: A silent connection is asked by the kernel whether the other end is there.
_KEEPALIVE_IDLE_S: Final = 5
_KEEPALIVE_EVERY_S: Final = 2
_KEEPALIVE_PROBES: Final = 3
#: Who has taken nothing for so long, or has not said that it is there, is gone: a pop does not wait
#: longer either. For Linux this is the last word on silent connections, too.
_UNTAKEN_MS_MAX: Final = 60_000
#: The kernel has no room for another connection: those that knock wait.
_NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_IN: Final = select.EPOLLIN
_OUT: Final = select.EPOLLOUT


class DirectEdge(Edge):
    def __init__(
        self,
        address: Address,
        access: Access | None = None,
        audit: Audit | None = None,
        connections_max: int = 1_000_000,
        secret: bytes | None = None,
    ) -> None:
        """With a `secret` key it is encrypted; who is at a connection's other end, a token says."""
        super().__init__(access, audit)
        self._secret = secret
        self._desk = sealed.desk() if secret is not None else None
        self._connections_max = connections_max
        #: Connections that were not let in.
        self.refused = 0
        self._listener = _listen(address)
        self.address = Address(address.host, self._listener.getsockname()[1])
        self._epoll = select.epoll()
        self.fd = self._epoll.fileno()
        self._listens = True
        self._epoll.register(self._listener, _IN)
        #: Always ready, and watched while the line is not empty.
        self._rest = os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._rests = False
        self._epoll.register(self._rest, 0)
        self._by_number: dict[int, Connection] = {}
        self._by_fd: dict[int, Connection] = {}
        #: Those that have not shaken hands, in the order in which they came.
        self._strangers: dict[int, Connection] = {}
        self._line: deque[Connection] = deque()
        self._number = 0

    # --- a round --------------------------------------------------------------------------

    def receive(self) -> list[Received]:
        """What has come, up to a round's worth."""
        line = self._line
        for fd, events in self._epoll.poll(0, _EVENTS_MAX):
            connection = self._by_fd.get(fd)
            if connection is None:
                if fd != self._rest:
                    self._accept()
            elif events == _IN:
                if not connection.due:
                    connection.due = True
                    line.append(connection)
            else:
                self._stir(connection, events)
        received: list[Received] = []
        later: list[Connection] = []  # they have had their pop
        taken_bytes = read_bytes = 0
        # What is refused counts, and what is no request: a flood of pings is a flood.
        for _ in range(ROUND_MESSAGES_MAX):
            if not line or taken_bytes >= ROUND_BYTES_MAX or read_bytes >= ROUND_BYTES_MAX:
                break
            connection = line.popleft()
            if not connection.watched & _IN:  # it has gone, or is to listen first
                connection.due = False
                continue
            if not connection.requests:
                try:
                    read_bytes += connection.read()
                except (OSError, EOFError, ProtocolError) as error:
                    self._drop(connection, str(error) or "it has gone")
                    continue
                if connection.number in self._strangers and connection.welcome:
                    del self._strangers[connection.number]
                if connection.waiting:
                    self._watch(connection)
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
        if line:
            if not self._rests:
                self._rests = True
                self._epoll.modify(self._rest, _IN)
        elif self._rests:
            self._rests = False
            self._epoll.modify(self._rest, 0)
        return received

    def send(self, caller: Caller, answer: wire.AnyAnswer, payload: Sequence[bytes]) -> bool:
        """Whether it went out, or waits until it can."""
        connection = self._by_number.get(caller.peer)
        if connection is None:
            log.debug("answer not sent", extra=fields(why="the caller has gone"))
            return False
        reply = wire.encode(wire.Reply(caller.rid, answer))
        if payload:
            connection.bulky = sum(map(len, payload)) >= BULKY_BYTES
        if not connection.send(zmtp.message([reply, *payload])):
            # It would wait for an answer that never comes; on a new connection it asks again.
            self._drop(connection, "it does not read, or has gone")
            return False
        if connection.waiting:
            self._watch(connection)
        return True

    def held(self, number: int) -> int:
        """The bytes that wait to be written to a connection; none if it has gone."""
        connection = self._by_number.get(number)
        return 0 if connection is None else connection.held

    def tend(self) -> None:
        """About once a second: what has taken too long."""
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
        """Waits a little for those whose answers are not out."""
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
                    # It would be ready all the time: until it is tended to it is not looked at.
                    log.warning("connections wait", extra=fields(why=error.strerror))
                    self._listens = False
                    self._epoll.modify(self._listener, 0)
                    return
                continue  # that one has gone already
            if len(self._by_number) >= self._connections_max:
                made.close()
                self.refused += 1
                if self.refused & (self.refused - 1) == 0:  # a flood of them stays short in the log
                    log.warning(
                        "connections refused",
                        extra=fields(most=self._connections_max, times=self.refused),
                    )
                continue
            self._number += 1
            connection = Connection(
                made, self._number, str(where[0]), time.monotonic(), self._secret, self._desk
            )
            self._by_number[connection.number] = self._by_fd[connection.fd] = connection
            self._strangers[connection.number] = connection
            connection.watched = _IN
            self._epoll.register(connection.fd, _IN)
            try:
                connection.greet()
            except EOFError:
                self._drop(connection, "it has gone")

    def _stir(self, connection: Connection, events: int) -> None:
        """Writes on to who has room again, and lets go of who is not there any more."""
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

    def _watch(self, connection: Connection) -> None:
        """What is to happen next with it."""
        wanted = _OUT if connection.waiting else 0
        if not connection.stalled:
            wanted |= _IN
        if wanted != connection.watched:
            self._epoll.modify(connection.fd, wanted)
            connection.watched = wanted

    def _leave(self, connection: Connection) -> None:
        self._forget(connection)
        connection.leave()

    def _drop(self, connection: Connection, why: str) -> None:
        log.debug("connection closed", extra=fields(peer=connection.where, why=why))
        self._forget(connection)
        connection.close()

    def _forget(self, connection: Connection) -> None:
        self._epoll.unregister(connection.fd)
        del self._by_number[connection.number], self._by_fd[connection.fd]
        self._strangers.pop(connection.number, None)


def _listen(address: Address) -> socket.socket:
    """What is set here holds for every connection that comes of it."""
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

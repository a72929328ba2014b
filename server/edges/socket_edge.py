"""The sockets of all client connections, read and written by the node's own thread.

On an idle machine waking threads is most of the cost of a request; here the kernel wakes the thread
that answers the request. One epoll watches the listening sockets and all connections, of ZMTP and
of gRPC, and the node's poller watches the epoll.

Connections with input form a round-robin queue; each yields one request, or one read of gRPC, and
goes to the end, so no client waits behind a flood of another. A non-empty queue at the end of a
round keeps the epoll ready (`_rest`), so the node does not sleep. Input on a connection can at
worst end the connection.

A ZMTP connection writes each answer at once. A gRPC connection gathers its output and is `marked`;
`flush` writes the output of a round with one system call for each connection.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import Final

from weft.errors import ProtocolError
from weft.proto import wire
from weft.server.node.call_inbox import QueuedCall
from weft.server.observability.log import fields

from .alarms import Alarms
from .edge import FLUSH_MS, HANDSHAKE_MS, ROUND_BYTES_MAX, ROUND_MESSAGES_MAX, Received
from .edge_connection import EdgeConnection
from .tcp_listener import NO_ROOM, Accept, Listener

log = logging.getLogger(__name__)

#: Events handled, and connections accepted, in one round.
_EVENTS_MAX: Final = 256
_ACCEPTS_MAX: Final = 64
#: Calls of gRPC that one round takes before it reads no more; one more read may exceed it.
ROUND_CALLS_MAX: Final = 256
#: Passes of `flush`: a written answer may resume a call that writes again. The rest waits for the
#: next round, so that one stream cannot hold the node.
_FLUSHES_MAX: Final = 4
_IN: Final = select.EPOLLIN
_OUT: Final = select.EPOLLOUT


class SocketEdge(ABC):
    def __init__(self) -> None:
        #: Connections closed because of `connections_max`.
        self.refused = 0
        #: Messages leased by responses that were still buffered when their connection ended: no
        #: client has seen them. The node returns them to their queues and empties the list.
        self.undelivered: list[wire.Lent] = []
        #: Requests and cancellations of gRPC calls for the node, which takes them in each round.
        self.calls: list[QueuedCall] = []
        #: gRPC connections with output to write.
        self.marked: list[EdgeConnection] = []
        #: Streaming calls to resume, and timers.
        self.resumed: list[Callable[[], None]] = []
        self.alarms = Alarms()
        self._epoll = select.epoll()
        self.fd = self._epoll.fileno()
        self._listeners: dict[int, Listener] = {}
        #: Always readable, and watched while the read queue is not empty.
        self._rest = os.eventfd(1, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._rests = False
        self._epoll.register(self._rest, 0)
        self._by_number: dict[int, EdgeConnection] = {}
        self._by_fd: dict[int, EdgeConnection] = {}
        self._listener_of: dict[int, Listener] = {}
        #: Connections without a complete handshake, in order of arrival.
        self._strangers: dict[int, EdgeConnection] = {}
        self._line: deque[EdgeConnection] = deque()
        self._number = 0
        #: Bytes of the requests in the last `receive`, and the limits of the next one.
        self.taken_bytes = 0
        self.messages_max, self.bytes_max = ROUND_MESSAGES_MAX, ROUND_BYTES_MAX

    @abstractmethod
    def _request(self, peer: int, frames: list[bytes], where: str) -> Received | None:
        """The request of a message; None if the request was refused and answered."""

    # --- a round --------------------------------------------------------------------------

    def receive(self) -> list[Received]:
        """Receives requests, up to the limits of one round; those of gRPC are in `calls`."""
        line = self._line
        for fd, events in self._epoll.poll(0, _EVENTS_MAX):
            connection = self._by_fd.get(fd)
            if connection is None or events != _IN:
                self._handle_rare_event(fd, connection, events)
            elif not connection.due:
                connection.due = True
                line.append(connection)
        received: list[Received] = []
        later: list[EdgeConnection] = []  # bulky connections that had their pop of this round
        taken_bytes = read_bytes = 0
        # Refused requests and non-requests count, too: a flood of pings is a flood.
        for _ in range(self.messages_max):
            if not line or taken_bytes >= self.bytes_max or read_bytes >= self.bytes_max:
                break
            connection = line.popleft()
            if not connection.watched & _IN:  # closed, or stalled until the client reads
                connection.due = False
                continue
            if not connection.requests:
                try:
                    read_bytes += connection.read()
                except (OSError, EOFError, ProtocolError) as error:
                    self.drop(connection, str(error) or "the client disconnected")
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
            if len(self.calls) >= ROUND_CALLS_MAX:
                break
        line += later
        self.taken_bytes = taken_bytes
        if (self.marked or self.resumed) and not received and not self.calls:
            self.flush()
        if self._rests == (not line):
            self._watch_rest(not self._rests)
        return received

    def receive_from(self, number: int, requests_max: int) -> list[Received]:
        """Receives more of one connection during a round: at most one read. Calls of gRPC go to
        `calls`. Nothing of a connection that is not to be read, or whose pops are bulky."""
        connection = self._by_number.get(number)
        if connection is None or connection.bulky or not connection.watched & _IN:
            return []
        if not connection.requests:
            try:
                connection.read()
            except (OSError, EOFError, ProtocolError) as error:
                self.drop(connection, str(error) or "the client disconnected")
                return []
            if connection.number in self._strangers or connection.waiting:
                self._note_read(connection)
        received: list[Received] = []
        while connection.requests and len(received) < requests_max:
            request = self._request(number, connection.requests.pop(), connection.where)
            if request is not None:
                received.append(request)
        if (connection.requests or connection.more) and not connection.due:
            connection.due = True
            self._line.append(connection)
            if not self._rests:
                self._watch_rest(True)
        return received

    def take_calls(self) -> list[QueuedCall]:
        calls, self.calls = self.calls, []
        return calls

    def flush(self) -> None:
        """Resumes calls and writes the output of marked connections: the end of a round."""
        for _ in range(_FLUSHES_MAX):
            while self.resumed:
                resumed, self.resumed = self.resumed, []
                for step in resumed:
                    step()
            if not self.marked:
                break
            marked, self.marked = self.marked, []
            for connection in marked:
                self._write(connection)
        if (self.calls or self.resumed or self.marked) and not self._rests:
            self._watch_rest(True)

    def ring(self) -> None:
        """Runs the alarms that are due."""
        for due in self.alarms.due(time.monotonic()):
            due()

    def next_alarm_us(self) -> int:
        """Microseconds until the next alarm."""
        at = self.alarms.next()
        assert at is not None, "asked only while there are alarms"
        return int((at - time.monotonic()) * 1_000_000)

    def _write(self, connection: EdgeConnection) -> None:
        if connection.number not in self._by_number:
            return
        try:
            connection.flush()
        except (OSError, EOFError) as error:
            self.drop(connection, str(error) or "the client disconnected")
        else:
            self._watch(connection)

    def _handle_rare_event(self, fd: int, connection: EdgeConnection | None, events: int) -> None:
        """Handles every event that is not input on a connection."""
        if connection is not None:
            self._stir(connection, events)
        elif (listener := self._listeners.get(fd)) is not None:
            self._accept(listener)

    def _note_read(self, connection: EdgeConnection) -> None:
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

    @abstractmethod
    def held(self, number: int) -> int:
        """Bytes buffered for a connection; 0 after the connection has ended."""

    def tend(self) -> None:
        """About once a second: drops connections with a late handshake, and accepts again."""
        if self._strangers:
            late = time.monotonic() - HANDSHAKE_MS / 1000
            for stranger in list(self._strangers.values()):
                if stranger.since > late:
                    break
                self.drop(stranger, "no handshake")
        for listener in self._listeners.values():
            if not listener.watched:
                listener.watched = True
                self._epoll.modify(listener.socket, _IN)

    def close(self) -> None:
        """Closes all connections; waits up to `FLUSH_MS` for unsent responses."""
        self.flush()
        for listener in list(self._listeners.values()):
            self.unlisten(listener.socket)
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
                except (OSError, EOFError) as error:
                    self.drop(slow, str(error))
                else:
                    if not slow.waiting:
                        self._leave(slow)
        for connection in list(self._by_number.values()):
            self.drop(connection, "the client did not read its answers")
        self._epoll.close()
        os.close(self._rest)

    # --- connections ----------------------------------------------------------------------

    def listen(self, made: socket.socket, accept: Accept, connections_max: int) -> None:
        """Accepts connections from a listening socket, which the edge owns from now on."""
        self._listeners[made.fileno()] = Listener(made, accept, connections_max)
        self._epoll.register(made, _IN)

    def unlisten(self, made: socket.socket) -> None:
        """Closes a listening socket; its connections stay."""
        if (listener := self._listeners.pop(made.fileno(), None)) is not None:
            self._epoll.unregister(listener.socket)
            listener.socket.close()

    def number(self) -> int:
        """The number of the next connection."""
        self._number += 1
        return self._number

    def add(self, connection: EdgeConnection) -> None:
        """Begins to serve a connection."""
        self._by_number[connection.number] = self._by_fd[connection.fd] = connection
        self._strangers[connection.number] = connection
        connection.watched = _IN
        self._epoll.register(connection.fd, _IN)
        try:
            connection.greet()
        except (OSError, EOFError):
            self.drop(connection, "the client disconnected")

    def _accept(self, listener: Listener) -> None:
        for _ in range(_ACCEPTS_MAX):
            try:
                made, where = listener.socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in NO_ROOM:
                    # The listener would stay ready all the time: do not watch it before the next
                    # `tend`.
                    log.warning("connections wait", extra=fields(why=error.strerror))
                    listener.watched = False
                    self._epoll.modify(listener.socket, 0)
                    return
                continue  # the pending connection has gone already
            if listener.open >= listener.connections_max:
                made.close()
                self.refused += 1
                if self.refused & (self.refused - 1) == 0:  # a flood stays short in the log
                    log.warning(
                        "connections refused",
                        extra=fields(most=listener.connections_max, times=self.refused),
                    )
                continue
            number = self.number()
            listener.open += 1
            self._listener_of[number] = listener
            connection = listener.accept(made, str(where[0]), number)
            if connection is not None:
                self.add(connection)

    def refuse(self, number: int) -> None:
        """A connection whose number was given by `Accept` will not be added."""
        self._listener_of.pop(number).open -= 1

    def _stir(self, connection: EdgeConnection, events: int) -> None:
        """Resumes writing to a writable connection, and drops a closed connection."""
        if events & _OUT and connection.waiting:
            try:
                connection.flush()
            except (OSError, EOFError) as error:
                self.drop(connection, getattr(error, "strerror", None) or str(error))
                return
            self._watch(connection)
        if events & ~_OUT and connection.stalled:
            self.drop(connection, "the client disconnected")
        elif (events & ~_OUT or connection.requests) and not connection.due:
            connection.due = True
            self._line.append(connection)

    def pause(self, number: int) -> bool:
        """Reads no more from a connection until `resume`; False if the connection has ended."""
        connection = self._by_number.get(number)
        if connection is None:
            return False
        connection.paused = True
        self._watch(connection)
        return True

    def resume(self, number: int) -> None:
        """Reads from a paused connection again, if the connection is still open."""
        connection = self._by_number.get(number)
        if connection is None:
            return
        connection.paused = False
        self._watch(connection)
        if not connection.due and not connection.stalled:
            connection.due = True  # received requests may wait in the connection
            self._line.append(connection)
            if not self._rests:
                self._watch_rest(True)

    def _watch(self, connection: EdgeConnection) -> None:
        """Updates the epoll event mask of a connection."""
        wanted = _OUT if connection.waiting else 0
        if not connection.stalled:
            wanted |= _IN
        if wanted != connection.watched:
            self._epoll.modify(connection.fd, wanted)
            connection.watched = wanted

    def _leave(self, connection: EdgeConnection) -> None:
        self._forget(connection)
        connection.leave()

    def drop(self, connection: EdgeConnection, why: str) -> None:
        """Closes a connection at once."""
        log.debug("connection closed", extra=fields(peer=connection.where, why=why))
        self.undelivered += connection.unsent_lent()
        self._forget(connection)
        connection.close()

    def _forget(self, connection: EdgeConnection) -> None:
        self._epoll.unregister(connection.fd)
        del self._by_number[connection.number], self._by_fd[connection.fd]
        self._strangers.pop(connection.number, None)
        self.refuse(connection.number)

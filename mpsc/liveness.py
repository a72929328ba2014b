"""Liveness of ranks and gateway by TCP connection: MPI does not report a rank's death.

Every rank of a gateway holds one nearly idle TCP connection to the gateway's process. When a
process ends, for any reason, its system closes its end, and the other side sees the end at its next
check. So the gateway learns of dead ranks, and ranks of a dead gateway, without heartbeats and
without a time limit. (A machine that loses its power or its network sends nothing: TCP's keepalive
detects that after KEEPALIVE_S.)

A rank sends the token and its number first, and LEFT when it leaves in good order; an end without
LEFT is a death. The gateway sends DEATH when some rank has died, so that no rank waits in a
collective call that the dead rank will never join.

The gateway listens on the loopback address if all ranks share its machine. The token, random and
handed out through MPI, keeps other processes away.
"""

from __future__ import annotations

import hmac
import secrets
import select
import socket
import struct
import time
from collections.abc import Iterable
from typing import Final

from weft.errors import DeadlineExceeded, Unavailable

LEFT: Final = b"L"
DEATH: Final = b"D"
#: The number of no rank: a connection that only waits for the gateway to end.
WITNESS: Final = 2**32 - 1
#: Time for all ranks to connect after the MPI barrier.
CONNECT_S: Final = 30.0
#: Time for a new connection to send its hello: the gateway does nothing else meanwhile.
HELLO_S: Final = 1.0
#: Keepalive interval in seconds; three probes without an answer end the connection.
KEEPALIVE_S: Final = 15
#: Poll interval of a wait for an end.
POLL_S: Final = 0.02
_HELLO: Final = struct.Struct("=32sI")


def _prepare(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


class RankLiveness:
    """A rank's connection to its gateway."""

    def __init__(self, address: str, number: int) -> None:
        host, port, token = address.split()
        try:
            self._socket = socket.create_connection((host, int(port)), CONNECT_S)
            self._socket.sendall(_HELLO.pack(token.encode(), number))
        except OSError as error:
            raise Unavailable(
                f"no way from this rank to its gateway at {host}:{port} ({error}): ranks need TCP "
                "between their machines, besides MPI"
            ) from error
        _prepare(self._socket)
        self._socket.setblocking(False)
        #: The gateway's process has ended.
        self.gateway_gone = False
        #: Some rank has died.
        self.death = False

    def poll(self) -> None:
        """Reads notifications from the gateway, without waiting."""
        while not self.gateway_gone:
            try:
                said = self._socket.recv(64)
            except BlockingIOError:
                return
            except OSError:
                said = b""
            self.gateway_gone = not said
            self.death = self.death or DEATH in said

    def leave(self) -> None:
        """Announces that the end of this rank will be no death."""
        try:
            self._socket.sendall(LEFT)
        except OSError:
            self.gateway_gone = True

    def close(self) -> None:
        self._socket.close()

    def wait_for_the_end(self) -> None:
        """Returns when the gateway's process has ended."""
        while not self.gateway_gone:
            _readable([self._socket], KEEPALIVE_S)
            self.poll()


class GatewayLiveness:
    """The gateway's ends of all liveness connections."""

    def __init__(self, host: str) -> None:
        self._listener = socket.create_server((host if host.startswith("127.") else "", 0))
        self._listener.setblocking(False)
        self._token = secrets.token_hex(16)
        self.address = f"{host} {self._listener.getsockname()[1]} {self._token}"
        self._lines: dict[int, socket.socket] = {}
        self._witnesses: list[socket.socket] = []
        self._left: set[int] = set()
        #: Ranks with a process that ended without LEFT.
        self.dead: set[int] = set()

    def connect(self, ranks: set[int]) -> None:
        """Waits until all given ranks have connected."""
        deadline = time.monotonic() + CONNECT_S
        while missing := ranks - self._lines.keys():
            if time.monotonic() > deadline:
                raise DeadlineExceeded(f"ranks {sorted(missing)} did not reach the gateway by TCP")
            self._accept()
            time.sleep(POLL_S / 10)

    def poll(self) -> set[int]:
        """Returns the ranks that have died since the last check, and notifies all others."""
        self._accept()
        ready = _readable(self._lines.values(), 0)
        ended = [
            rank
            for rank, line in self._lines.items()
            if line.fileno() in ready and self._ended(rank)
        ]
        for rank in ended:
            self._lines.pop(rank).close()
        fresh = set(ended) - self._left
        if fresh:
            self.dead |= fresh
            for line in self._lines.values():
                _say(line, DEATH)
        return fresh

    def ended(self) -> set[int]:
        """Ranks that have left in good order or died, after a fresh check."""
        self.poll()
        return self.dead | self._left

    def is_dead(self, rank: int) -> bool:
        """True if the rank's process has ended, or the rank has left and its process is ending.

        No operation on the rank's memory need complete.
        """
        return rank in self.ended()

    def wait_for_the_end(self) -> None:
        """Returns when every rank's process has ended."""
        while self._lines:
            self.poll()
            time.sleep(POLL_S)

    def close(self) -> None:
        self._listener.close()
        for line in (*self._lines.values(), *self._witnesses):
            line.close()

    def _accept(self) -> None:
        while True:
            try:
                line, _ = self._listener.accept()
            except BlockingIOError:
                return
            line.settimeout(HELLO_S)
            try:
                token, number = _HELLO.unpack(line.recv(_HELLO.size, socket.MSG_WAITALL))
            except (OSError, struct.error):
                line.close()  # not a rank of the job
                continue
            if not hmac.compare_digest(token, self._token.encode()):
                line.close()
                continue
            _prepare(line)
            line.setblocking(False)
            if number == WITNESS:
                self._witnesses.append(line)
            else:
                self._lines[number] = line

    def _ended(self, rank: int) -> bool:
        try:
            said = self._lines[rank].recv(64)
        except BlockingIOError:
            return False
        except OSError:
            said = b""
        if LEFT in said:
            self._left.add(rank)
        return not said


def _readable(sockets: Iterable[socket.socket], seconds: float) -> set[int]:
    """The descriptors with data or an end. `select.select` takes none above 1,023."""
    poller = select.poll()
    for each in sockets:
        poller.register(each, select.POLLIN)
    return {descriptor for descriptor, _ in poller.poll(seconds * 1000)}


def _say(line: socket.socket, what: bytes) -> None:
    try:
        line.sendall(what)
    except OSError:
        return  # the rank has ended as well: the next check finds it

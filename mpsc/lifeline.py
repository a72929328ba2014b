"""Who is still there: MPI does not say when a rank dies, a socket does.

Every rank of a gateway holds one TCP connection to the gateway's process, on which next to
nothing is said. When a process ends, in whatever way, its system closes its end, and the other
learns of it at its next look. So the gateway knows of dead ranks, and ranks of a dead gateway,
without heartbeats and without a time limit. (A machine that loses its power or its network says
nothing: TCP's keepalive finds that after KEEPALIVE_S.)

Said from rank to gateway: the token and its number at first, and LEFT when it leaves in good
order; an end without LEFT is a death. Said from gateway to rank: DEATH, when some rank has died,
so that nobody waits in a collective call that it will never join.

The gateway listens on the loopback address if all ranks share its machine. The token, drawn at
random and handed out through MPI, keeps strangers away.
"""

from __future__ import annotations

import hmac
import secrets
import select
import socket
import struct
import time
from typing import Final

from weft.errors import DeadlineExceeded, Unavailable

LEFT: Final = b"L"
DEATH: Final = b"D"
#: A number that is no rank's: someone who only waits for the gateway to end.
WITNESS: Final = 2**32 - 1
#: How long all ranks have to connect once MPI has brought them together.
CONNECT_S: Final = 30.0
#: How long a newcomer has to say who it is: the gateway does nothing else meanwhile.
HELLO_S: Final = 1.0
#: After this much silence the system asks whether the other machine is there; thrice in vain ends.
KEEPALIVE_S: Final = 15
#: How often someone who waits for an end looks.
LOOK_S: Final = 0.02
_HELLO: Final = struct.Struct("=32sI")


def _prepare(connection: socket.socket) -> None:
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


class Lifeline:
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

    def look(self) -> None:
        """Take in what was said."""
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
        """Say that this rank's end will be no death."""
        try:
            self._socket.sendall(LEFT)
        except OSError:
            self.gateway_gone = True

    def close(self) -> None:
        self._socket.close()

    def wait_for_the_end(self) -> None:
        """Return when the gateway's process has ended."""
        while not self.gateway_gone:
            select.select([self._socket], [], [], KEEPALIVE_S)
            self.look()


class Lifelines:
    """The gateway's ends of all lifelines."""

    def __init__(self, host: str) -> None:
        self._listener = socket.create_server((host if host.startswith("127.") else "", 0))
        self._listener.setblocking(False)
        self._token = secrets.token_hex(16)
        self.address = f"{host} {self._listener.getsockname()[1]} {self._token}"
        self._lines: dict[int, socket.socket] = {}
        self._witnesses: list[socket.socket] = []
        self._left: set[int] = set()
        #: Ranks whose process ended without a word.
        self.dead: set[int] = set()

    def connect(self, ranks: set[int]) -> None:
        """Wait until all these ranks have come."""
        deadline = time.monotonic() + CONNECT_S
        while missing := ranks - self._lines.keys():
            if time.monotonic() > deadline:
                raise DeadlineExceeded(f"ranks {sorted(missing)} did not reach the gateway by TCP")
            self._accept()
            time.sleep(LOOK_S / 10)

    def look(self) -> set[int]:
        """The ranks that have died since the last look; all others are told."""
        self._accept()
        ready = select.select(list(self._lines.values()), [], [], 0)[0] if self._lines else []
        ended = [rank for rank, line in self._lines.items() if line in ready and self._ended(rank)]
        for rank in ended:
            self._lines.pop(rank).close()
        fresh = set(ended) - self._left
        if fresh:
            self.dead |= fresh
            for line in self._lines.values():
                _say(line, DEATH)
        return fresh

    def wait_for_the_end(self) -> None:
        """Return when every rank's process has ended."""
        while self._lines:
            self.look()
            time.sleep(LOOK_S)

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
                line.close()  # a stranger
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


def _say(line: socket.socket, what: bytes) -> None:
    try:
        line.sendall(what)
    except OSError:
        return  # it has ended as well: the next look will find that

"""Fetches parts of blocks from block servers, and verifies them.

One connection for each server and thread stays open; a connection that the server has closed
meanwhile is opened again once.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from weft.errors import InvalidArgument, PermissionDenied, Unavailable

from .block_file import INDEX_BYTES_MAX, BlockDamaged, check_part
from .block_frames import (
    ANSWER,
    CHALLENGE_BYTES,
    DENIED,
    FETCH,
    FORGET,
    FOUND,
    MISSING,
    NAMES_MAX,
    REQUEST,
    STATUSES,
    BlockRequest,
    challenge_of,
    receive,
)
from .block_store import BLOCK_BYTES_MAX
from .job_key import JobKeys, proof

CONNECT_S: Final = 5.0
#: No byte for so long: the server is lost.
READ_S: Final = 60.0


class WantedPart(NamedTuple):
    """A block by name and checksum. Without a checksum, a part is verified by the block's own
    index: enough for data that only one server can have."""

    name: str
    checksum: int | None


class _Connection:
    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host.strip("[]"), int(port)), CONNECT_S)
        self._number = 0
        try:
            self.socket.settimeout(READ_S)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._challenge = receive(self.socket, CHALLENGE_BYTES)
        except BaseException:
            self.socket.close()
            raise

    def send(self, request: BlockRequest, key: bytes) -> None:
        body = msgspec.msgpack.encode(request)
        given = proof(key, challenge_of(self._challenge, self._number), body)
        self._number += 1
        self.socket.sendall(REQUEST.pack(len(body)) + given + body)


class BlockClient:
    """Reads the blocks of one app; threads may share an instance."""

    def __init__(self, app: str, keys: JobKeys) -> None:
        self._app = app
        self._keys = keys
        self._here = threading.local()
        #: The connections of all threads.
        self._open: set[_Connection] = set()

    def close(self) -> None:
        """Closes the connections; a later fetch opens another one."""
        while self._open:
            self._open.pop().socket.close()

    def fetch(
        self, address: str, job: str, wanted: Sequence[WantedPart], part: int = 0
    ) -> Iterator[bytes | BlockDamaged]:
        """The parts in order; BlockDamaged stands for a block that is missing or damaged there.

        Raises Unavailable if the server does not answer, and PermissionDenied.
        """
        for start in range(0, len(wanted), NAMES_MAX):
            yield from self._fetch(address, job, wanted[start : start + NAMES_MAX], part)

    def _fetch(
        self, address: str, job: str, wanted: Sequence[WantedPart], part: int
    ) -> Iterator[bytes | BlockDamaged]:
        request = BlockRequest(FETCH, self._app, job, [each.name for each in wanted], part)
        connection = self._asked(address, request)
        complete = False
        try:
            for each in wanted:
                yield self._receive(connection, address, each, part)
            complete = True
        except (OSError, EOFError) as error:
            raise Unavailable(f"the block server {address} has ended: {error}") from None
        finally:
            if not complete:
                self._drop(address)

    def forget(self, address: str, job: str) -> None:
        """Has a server remove the blocks of a job. Raises Unavailable, PermissionDenied."""
        connection = self._asked(address, BlockRequest(FORGET, self._app, job))
        try:
            self._head(connection, address)
        except (OSError, EOFError) as error:
            self._drop(address)
            raise Unavailable(f"the block server {address} has ended: {error}") from None

    def _asked(self, address: str, request: BlockRequest) -> _Connection:
        key = self._keys.find(request.job)
        if key is None:
            raise PermissionDenied(f"the app {self._app} has no job {request.job}: it has ended")
        kept = self._connections.get(address)
        try:
            if kept is not None:
                try:
                    kept.send(request, key)
                    if _is_open(kept.socket):
                        return kept
                except OSError:
                    pass
                self._drop(address)
            made = self._connections[address] = _Connection(address)
            self._open.add(made)
            made.send(request, key)
        except (OSError, EOFError, ValueError) as error:
            self._drop(address)
            raise Unavailable(f"the block server {address} does not answer: {error}") from None
        return made

    def _receive(
        self, connection: _Connection, address: str, wanted: WantedPart, part: int
    ) -> bytes | BlockDamaged:
        status, index, data = self._head(connection, address)
        if status == MISSING:
            return BlockDamaged(index.decode(errors="replace"))
        try:
            check_part(wanted.name, index, part, wanted.checksum, data)
        except BlockDamaged as error:
            return error
        return data

    def _head(self, connection: _Connection, address: str) -> tuple[int, bytes, bytes]:
        sock = connection.socket
        status, short, long = ANSWER.unpack(receive(sock, ANSWER.size))
        if status not in STATUSES or short > INDEX_BYTES_MAX or long > BLOCK_BYTES_MAX:
            # Another program has the port of a worker that has ended, say.
            self._drop(address)
            raise Unavailable(f"the server at {address} is no block server")
        text, data = receive(sock, short), receive(sock, long)
        if status in (FOUND, MISSING):
            return status, text, data
        self._drop(address)
        words = f"the block server {address} refuses: {text.decode(errors='replace')}"
        raise (PermissionDenied if status == DENIED else InvalidArgument)(words)

    @property
    def _connections(self) -> dict[str, _Connection]:
        found: dict[str, _Connection] | None = getattr(self._here, "connections", None)
        if found is None:
            found = self._here.connections = {}
        return found

    def _drop(self, address: str) -> None:
        kept = self._connections.pop(address, None)
        if kept is not None:
            self._open.discard(kept)
            kept.socket.close()


def _is_open(sock: socket.socket) -> bool:
    """False if the server has closed an idle connection: no answer is there, but the end is."""
    sock.setblocking(False)
    try:
        return bool(sock.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        sock.settimeout(READ_S)

"""The block server of a worker: serves the blocks of its spill folder to other workers.

| a request | the server |
|---|---|
| proves the key of its job | sends the parts, or "missing" for a block that it has not |
| proves another job's key, or none | refuses, and closes the connection |
| has a name that is none (`../x`) | refuses |
| is longer than its limit | closes the connection |

A thread for each connection, `CONNECTIONS_MAX` at most: further readers wait in the queue of the
kernel. The kernel copies the bytes from the file to the socket, so no part is in the memory of the
server, and the threads that renew leases are not held up.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import socket
import threading
from typing import Final

import msgspec

from weft.errors import InvalidArgument, WeftError

from .block_file import BlockDamaged, PartPlace
from .block_frames import (
    ANSWER,
    CHALLENGE_BYTES,
    DENIED,
    FETCH,
    FORGET,
    FOUND,
    INVALID,
    MISSING,
    NAMES_MAX,
    PROOF_BYTES,
    REQUEST,
    REQUEST_BYTES_MAX,
    BlockRequest,
    challenge_of,
    receive,
)
from .block_store import BlockStore, check_name
from .job_key import JobKeys, proof

log = logging.getLogger("weft.tasks")

CONNECTIONS_MAX: Final = 64
#: An idle connection, or a reader that does not read, is closed after this time.
IDLE_S: Final = 60.0
SWEEP_S: Final = 60.0
#: The pause after a connection that could not be taken.
REFUSED_S: Final = 0.5

_decode = msgspec.msgpack.Decoder(BlockRequest).decode


class BlockServer:
    """Listens from its construction until `close`, in threads of its own."""

    def __init__(self, store: BlockStore, keys: JobKeys, app: str, host: str, port: int = 0):
        self._store = store
        self._keys = keys
        self._app = app
        try:
            self._listener = socket.create_server((host, port), backlog=128)
        except OSError as error:
            raise InvalidArgument(
                f"the block server cannot listen on {host}:{port}: {error.strerror}"
            ) from None
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self._room = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self.sent_bytes = 0
        for target, name in ((self._accept, "weft-blocks"), (self._sweep, "weft-sweep")):
            threading.Thread(target=target, name=name, daemon=True).start()

    def close(self) -> None:
        self._ended.set()
        with self._lock:
            connections = [self._listener, *self._open]
        for each in connections:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._listener.close()

    def _accept(self) -> None:
        while not self._ended.is_set():
            self._room.acquire()
            try:
                connection, _ = self._listener.accept()
                try:
                    threading.Thread(
                        target=self._serve, args=(connection,), name="weft-block", daemon=True
                    ).start()
                except BaseException:
                    connection.close()
                    raise
            except (OSError, RuntimeError) as error:  # no more open files, or threads, for now
                self._room.release()
                if not self._ended.wait(REFUSED_S):
                    log.warning("the block server cannot take a connection: %s", error)

    def _sweep(self) -> None:
        while True:
            self._store.sweep()
            if self._ended.wait(SWEEP_S):
                return

    def _serve(self, connection: socket.socket) -> None:
        with self._lock:
            self._open.add(connection)
        try:
            with connection:
                connection.settimeout(IDLE_S)
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                challenge, number = secrets.token_bytes(CHALLENGE_BYTES), 0
                connection.sendall(challenge)
                while self._answer(connection, challenge_of(challenge, number)):
                    number += 1
        except (OSError, EOFError):
            pass  # the reader has ended
        finally:
            with self._lock:
                self._open.discard(connection)
            self._room.release()

    def _answer(self, connection: socket.socket, challenge: bytes) -> bool:
        """Answers one request; False ends the connection."""
        (size,) = REQUEST.unpack(receive(connection, REQUEST.size))
        if size > REQUEST_BYTES_MAX:
            return False
        given, body = receive(connection, PROOF_BYTES), receive(connection, size)
        try:
            request = _decode(body)
            self._check(request, given, challenge, body)
        except (msgspec.DecodeError, InvalidArgument) as error:
            return _refuse(connection, INVALID, str(error))
        except PermissionError as error:
            log.warning("the block server refuses %s: %s", connection.getpeername(), error)
            return _refuse(connection, DENIED, str(error))
        except WeftError as error:
            log.warning("the block server cannot check a key: %s", error.message)
            return False  # the reader tries again
        if request.operation == FORGET:
            self._store.forget(request.app, request.job)
            connection.sendall(ANSWER.pack(FOUND, 0, 0))
            return True
        for name in request.names:
            self._send(connection, request, name)
        return True

    def _check(self, request: BlockRequest, given: bytes, challenge: bytes, body: bytes) -> None:
        """Raises PermissionError for a wrong proof, and InvalidArgument."""
        check_name("job", request.job)
        for name in request.names:
            check_name("name", name)
        if request.operation not in (FETCH, FORGET) or len(request.names) > NAMES_MAX:
            raise InvalidArgument("the request has an unknown operation, or too many names")
        key = self._keys.find(request.job) if request.app == self._app else None
        if key is None or not hmac.compare_digest(given, proof(key, challenge, body)):
            raise PermissionError(
                f"the reader does not prove the key of the job {request.job} of {request.app}"
            )

    def _send(self, connection: socket.socket, request: BlockRequest, name: str) -> None:
        try:
            place = self._store.open(request.app, request.job, name, request.part)
        except BlockDamaged as error:
            text = str(error).encode()[:1000]
            connection.sendall(ANSWER.pack(MISSING, len(text), 0) + text)
            return
        try:
            self._send_part(connection, place)
        finally:
            os.close(place.handle)

    def _send_part(self, connection: socket.socket, place: PartPlace) -> None:
        connection.sendall(
            ANSWER.pack(FOUND, len(place.index_bytes), place.length) + place.index_bytes
        )
        with open(place.handle, "rb", closefd=False) as file:
            sent = connection.sendfile(file, place.start, place.length) if place.length else 0
        self.sent_bytes += sent
        if sent < place.length:
            raise EOFError("the file has become shorter")


def _refuse(connection: socket.socket, status: int, words: str) -> bool:
    text = words.encode()[:1000]
    connection.sendall(ANSWER.pack(status, len(text), 0) + text)
    return False


def local_address(seed: str) -> str:
    """The address of this machine on the way to a node: no packet is sent."""
    host, _, port = seed.rpartition(":")
    family = socket.AF_INET6 if ":" in host.strip("[]") else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect((host.strip("[]"), int(port)))
        return str(probe.getsockname()[0])

"""beanstalkd over a socket. The protocol has no batches, so commands are pipelined.

greenstalk, the usual client, waits for each answer. Writing 1,000 commands and then reading 1,000
answers is many times faster; the server answers in order.
"""

from __future__ import annotations

import socket
from typing import Final

from .server import Address
from .session import SILENCE_S, Flow, Lost, Session

#: Time to run of a job in seconds: longer than any run.
_TTR_S: Final = 3600
_READ_BYTES: Final = 1024 * 1024


class Beanstalkd(Session):
    def __init__(self, address: Address) -> None:
        self._socket = socket.create_connection((address["host"], address["port"]), SILENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb", _READ_BYTES)
        self._used, self._watched = "", ""
        self._bodies: list[bytes] = []

    def create(self, queues: list[str]) -> None:
        """Does nothing: the first job creates the tube."""

    def drop(self, queues: list[str]) -> None:
        """Does nothing: the tube disappears with the last job."""

    def left(self, queues: list[str]) -> int:
        total = 0
        for queue in queues:
            self._socket.sendall(f"stats-tube {queue}\r\n".encode())
            words = self._file.readline().split()
            if words[0] == b"NOT_FOUND":
                continue
            text = self._file.read(int(words[1]) + 2).decode()
            facts = dict(line.split(": ") for line in text.splitlines() if ": " in line)
            total += int(facts["current-jobs-ready"]) + int(facts["current-jobs-reserved"])
        return total

    def prepare(self, flow: Flow, *, takes: bool) -> None:
        self._bodies = flow.bodies()
        for queue in flow.queues if takes else ():
            self._ask(f"watch {queue}\r\n".encode(), b"WATCHING")

    def produce(self, flow: Flow) -> None:
        for queue, bodies in flow.batches(self._bodies):
            self._use(queue)
            self._socket.sendall(b"".join(map(_put, bodies)))
            for _ in bodies:
                self._expect(b"INSERTED")

    def consume(self, flow: Flow) -> None:
        done = 0
        # The first reserve of a batch waits; the others return immediately.
        first = f"reserve-with-timeout {int(SILENCE_S)}\r\n".encode()
        more = b"reserve-with-timeout 0\r\n"
        while done < flow.count:
            self._socket.sendall(first + more * (min(flow.batch, flow.count - done) - 1))
            jobs = [self._job() for _ in range(min(flow.batch, flow.count - done))]
            if jobs[0] is None:
                raise Lost(f"nothing came for {SILENCE_S} s; {done} of {flow.count} were taken")
            ids = [job for job in jobs if job is not None]
            self._socket.sendall(b"".join(b"delete %b\r\n" % job for job in ids))
            for _ in ids:
                self._expect(b"DELETED")
            done += len(ids)

    def push(self, queue: str, body: bytes) -> None:
        self._use(queue)
        self._ask(_put(body), b"INSERTED")

    def pop_ack(self, queue: str) -> None:
        if self._watched != queue:
            self._ask(f"watch {queue}\r\n".encode(), b"WATCHING")
            self._watched = queue
        self._socket.sendall(b"reserve-with-timeout 0\r\n")
        job = self._job()
        if job is None:
            raise Lost("a message that was pushed is not there")
        self._ask(b"delete %b\r\n" % job, b"DELETED")

    def close(self) -> None:
        self._file.close()
        self._socket.close()

    def _use(self, queue: str) -> None:
        if self._used != queue:
            self._ask(f"use {queue}\r\n".encode(), b"USING")
            self._used = queue

    def _ask(self, command: bytes, wanted: bytes) -> None:
        self._socket.sendall(command)
        self._expect(wanted)

    def _expect(self, wanted: bytes) -> None:
        line = self._file.readline()
        if not line.startswith(wanted):
            raise Lost(f"beanstalkd answered {line!r} instead of {wanted!r}")

    def _job(self) -> bytes | None:
        """Reads a reserved job and returns the job's id."""
        line = self._file.readline()
        words = line.split()
        if words[:1] == [b"TIMED_OUT"]:
            return None
        if words[:1] != [b"RESERVED"]:
            raise Lost(f"beanstalkd answered {line!r} to a reserve")
        self._file.read(int(words[2]) + 2)
        return words[1]


def _put(body: bytes) -> bytes:
    return b"put 0 0 %d %d\r\n%b\r\n" % (_TTR_S, len(body), body)

"""The audit log: changes and refusals, by caller. One JSON object per line, in a file.

| field    | content                                                                     |
|----------|-----------------------------------------------------------------------------|
| `time`   | time of the answer, UTC                                                     |
| `node`   | the node that received the request                                          |
| `who`    | the token's name; "" if no tokens are required, or none was presented       |
| `from`   | the client's address                                                        |
| `action` | the verb; of a backup and of a restore the first request alone              |
| `on`     | the queue, key, or node                                                     |
| `result` | OK, or the error's code                                                     |
| `detail` | settings, counts, or the error message                                      |

The file is append-only. At `BYTES_MAX` the file becomes ``NAME.1``, the old ``NAME.1`` becomes
``NAME.2``, and so on, up to `FILES_MAX` files. Refusals of ordinary verbs are logged, too, at a
limited number per second, and the rest is counted: an unauthenticated client must not be able to
fill the disk, or to push out important lines. A line that cannot be written is reported in the
node's own log; the action is not undone. Any thread may write.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path
from typing import Final

import msgspec

from weft.errors import WeftError
from weft.ids import MessageId
from weft.limits import MIB
from weft.proto import wire
from weft.proto.verbs import requests_where
from weft.server.observability.log import fields

from .caller import Caller

log = logging.getLogger(__name__)

BYTES_MAX: Final = 16 * MIB
FILES_MAX: Final = 8
#: Lines about refusals in one second.
REFUSED_PER_SECOND_MAX: Final = 20
_ON_CHARACTERS_MAX: Final = 200

#: Verbs that are logged on success, too.
AUDITED: Final = requests_where(lambda verb: verb.audited)


def audited(request: wire.AnyRequest) -> bool:
    """True if the request is logged. Called for every request: mostly one look-up decides."""
    if type(request) not in AUDITED:
        return False
    # Of a backup and of a restore the first request alone; of a recovery, not the report.
    if isinstance(request, wire.Snapshot):
        return not (request.partition or request.after_lsn or request.after_key)
    if isinstance(request, wire.Recover):
        return request.execute
    if isinstance(request, wire.Restore):
        return request.number == (-1 if request.purged_only else 0)
    return True


class Audit:
    def __init__(self, path: Path, node: str) -> None:
        self._path = path
        self._node = node
        self._lock = threading.Lock()
        self._file = -1
        self._size = 0
        self._second = self._refused = 0
        self._failed = False

    def done(self, who: Caller, request: wire.AnyRequest, answer: wire.AnyAnswer) -> None:
        if isinstance(answer, wire.Failure):
            self._write(who.name, who.where, request, answer.code, answer.message)
        else:
            self._write(who.name, who.where, request, "OK", _detail(request, answer))

    def refused(self, who: Caller, request: wire.AnyRequest, error: WeftError) -> None:
        """Logs an access refusal: a missing, unknown or insufficient token."""
        with self._lock:
            second = int(time.monotonic())
            left_out = self._refused - REFUSED_PER_SECOND_MAX
            if second != self._second:
                self._second, self._refused = second, 0
                if left_out > 0:
                    log.warning("refusals were not written down", extra=fields(count=left_out))
            self._refused += 1
            if self._refused > REFUSED_PER_SECOND_MAX:
                return
        self._write(who.name, who.where, request, error.code, error.message)

    def close(self) -> None:
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def _write(
        self, who: str, where: str, request: wire.AnyRequest, result: str, detail: str
    ) -> None:
        on = next(
            (getattr(request, n) for n in ("topic", "queue", "key", "node") if hasattr(request, n)),
            "",
        )
        if isinstance(request, wire.Commit):
            on = ", ".join(dict.fromkeys(_named(request)))
        line = msgspec.json.encode(
            {
                "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "node": self._node,
                "who": who,
                "from": where,
                "action": type(request).__name__,
                "on": str(on or "")[:_ON_CHARACTERS_MAX],
                "result": result,
                "detail": detail,
            }
        )
        with self._lock:
            try:
                self._append(line + b"\n")
                self._failed = False
            except OSError as error:
                if not self._failed:
                    log.error("audit log not written", extra=fields(error=str(error)))
                self._failed = True

    def _append(self, line: bytes) -> None:
        if self._file < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o600)
            self._size = os.fstat(self._file).st_size
        os.write(self._file, line)
        self._size += len(line)
        if self._size >= BYTES_MAX:
            self._rotate()

    def _rotate(self) -> None:
        os.close(self._file)
        self._file = -1
        for number in range(FILES_MAX - 1, 0, -1):
            older = self._path if number == 1 else _numbered(self._path, number - 1)
            if older.exists():
                older.replace(_numbered(self._path, number))


def _named(request: wire.Commit) -> list[str]:
    """The queues and keys of a commit."""
    queues = [each.queue for each in request.acks] + [each.push.queue for each in request.pushes]
    if isinstance(request, wire.CommitGraph):
        queues += [each.queue for each in request.arrivals]
    return queues + [write.key for write in request.writes]


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _detail(request: wire.AnyRequest, answer: wire.AnyAnswer) -> str:
    match request:
        case wire.CreateQueue():
            made = isinstance(answer, wire.Created) and answer.created
            return f"{'made' if made else 'there already'}: {request.settings}"
        case wire.UpdateQueue():
            return str(request.changes)
        case wire.DeleteQueue() | wire.PurgeQueue() | wire.Redrive():
            return f"{answer.count} messages" if isinstance(answer, wire.Done) else ""
        case wire.Cancel():
            name = MessageId.of(request.partition, request.producer, request.batch, request.index)
            return f"{name}, {'cancelled' if answer == wire.Done(1) else 'not there'}"
        case wire.Join():
            return f"{request.grpc}, {request.peer}" + (", a witness" if request.witness else "")
        case wire.Recover():
            begun = [p.partition for p in getattr(answer, "places", ()) if not p.base]
            return (
                f"lost nodes {', '.join(request.lost)}; {len(request.partitions)} partitions lost "
                f"all members, {len(begun)} of them begin empty"
                + ("; voters forced" if request.force_voters else "")
            )
        case wire.Leave():
            return "force" if request.force else ""
    return "begun"

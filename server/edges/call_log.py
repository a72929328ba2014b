"""The log of gRPC calls: an id for each call, its result and its duration.

A call's id is the caller's own ``x-request-id`` or a random one, and is returned in the trailing
metadata, so that a line in a client's log leads to the line in the node's. Only failed or slow
calls are logged, at a limited number of lines per second: a client in an endless loop must not fill
the disk of the queues. A log belongs to the thread of its server; any thread may read the counts.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterator
from typing import Final

from weft.errors import WeftError
from weft.proto import weft_pb2
from weft.proto.verbs import MESSAGE_WAITS, VERBS
from weft.server.observability.histogram import Histogram
from weft.server.observability.log import Field, fields

log = logging.getLogger(__name__)

REQUEST_ID: Final = "x-request-id"
#: An id that is longer, or unsafe to print in a log, is replaced.
_NAME: Final = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
#: Longer than any fsync of a healthy disk.
SLOW_S: Final = 1.0
#: Methods that wait on request, or stream: their duration says nothing about the node.
WAITING: Final = frozenset(
    method.partition(".")[2] for request in MESSAGE_WAITS for method in VERBS[request].grpc
) | frozenset(
    method.name
    for service in weft_pb2.DESCRIPTOR.services_by_name.values()
    for method in service.methods
    if method.client_streaming or method.server_streaming
)
#: Log lines about calls in one second; the next second begins with the number left out.
LINES_PER_SECOND_MAX: Final = 20
#: Bytes of a random id, and ids for which the system's random numbers are read at one time.
_ID_BYTES: Final = 8
_IDS: Final = 512
#: Codes that report a fault of the node, not of the request.
_OUR_FAULT: Final = frozenset(
    {"WEFT", "STORAGE", "STORE_DAMAGED", "STORE_LOCKED", "STORE_VERSION", "STORAGE_FULL"}
)
OK: Final = "OK"
#: The client went away, or its deadline passed.
CANCELLED: Final = "CANCELLED"


class CallLog:
    """The call log of one edge."""

    def __init__(self) -> None:
        #: Calls that ended, by (method, code).
        self.ended: dict[tuple[str, ...], int] = {}
        #: Durations by method, without the methods in `WAITING`.
        self.times: dict[str, Histogram] = {}
        self.under_way = 0
        self._ids = _random_ids()
        self._second = 0
        self._lines = 0

    def begin(self, method: str, request_id: str) -> LoggedCall:
        """Begins a call of the method `Push`, say; `request_id` is the caller's own, or ""."""
        self.under_way += 1
        if not request_id or not _NAME.fullmatch(request_id):
            request_id = next(self._ids)
        return LoggedCall(method, request_id)

    def end(self, call: LoggedCall, code: str, error: WeftError | None = None) -> None:
        took_s = time.perf_counter() - call.began
        self.under_way -= 1
        key = (call.method, code)
        self.ended[key] = self.ended.get(key, 0) + 1
        if call.method not in WAITING:
            if (times := self.times.get(call.method)) is None:
                times = self.times[call.method] = Histogram()
            times.observe(took_s)
        if error is None and took_s <= SLOW_S:
            return
        facts: dict[str, Field] = {"call": call.method, "request": call.name, "code": code}
        facts["took_ms"] = round(took_s * 1000, 1)
        if error is not None:
            level = logging.WARNING if code in _OUR_FAULT else logging.INFO
            self._say(level, "call refused", facts | {"error": error.message})
        elif call.method not in WAITING:
            self._say(logging.WARNING, "call was slow", facts)

    def _say(self, level: int, fact: str, facts: dict[str, Field]) -> None:
        second = int(time.monotonic())
        if second != self._second:
            left_out = self._lines - LINES_PER_SECOND_MAX
            self._second, self._lines = second, 0
            if left_out > 0:
                log.warning("calls were not logged", extra=fields(count=left_out))
        self._lines += 1
        if self._lines <= LINES_PER_SECOND_MAX:
            log.log(level, fact, extra=fields(**facts))


class LoggedCall:
    """One call in progress."""

    __slots__ = ("began", "method", "name")

    def __init__(self, method: str, name: str) -> None:
        self.method = method
        self.name = name
        self.began = time.perf_counter()

    @property
    def trailing(self) -> tuple[str, str]:
        return REQUEST_ID, self.name


def _random_ids() -> Iterator[str]:
    while True:
        digits = os.urandom(_ID_BYTES * _IDS).hex()
        for place in range(0, len(digits), 2 * _ID_BYTES):
            yield digits[place : place + 2 * _ID_BYTES]

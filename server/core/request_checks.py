"""Checks of a client's request before it runs, for verbs that need more than their decoder.

A check gets the request and the number of partitions; it returns the error message, or None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from weft import limits
from weft.proto import pipelines, wire
from weft.proto.handlers import Handlers

check_of: Final = Handlers[Callable[..., str | None]]()


@check_of(pipelines.ReadReserved)
def read_reserved(request: pipelines.ReadReserved, partitions: int) -> str | None:
    if not 0 <= request.partition < partitions:
        return f"there is no partition {request.partition}"
    return None


@check_of(wire.Where)
def where(request: wire.Where, partitions: int) -> str | None:
    if not 0 <= request.wait_ms <= limits.WAIT_MS_MAX:
        return f"wait_ms must be 0 to {limits.WAIT_MS_MAX}, not {request.wait_ms}"
    if len(request.fallen) > limits.FALLEN_MAX:
        return f"at most {limits.FALLEN_MAX} nodes can be named, not {len(request.fallen)}"
    return None

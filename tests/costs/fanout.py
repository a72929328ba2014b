"""One message to ten queues: one payload, one write, and few calls for each queue."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Final

import weft
from weft.persistence import layout
from weft.persistence.store import Change

from .inside import CountingStore, Inside, opened
from .operations import BODY, low, patient

_QUEUES: Final = [f"fan-{number}" for number in range(10)]
_TIMES: Final = 100
_WARM_UP: Final = 5


def measure(data: Path) -> dict[str, float]:
    with patient(), opened(data) as inside, weft.connect(inside.address) as client:
        for name in _QUEUES:
            client.create_queue(name)

        def multicast() -> None:
            client.multicast(BODY, queues=_QUEUES)

        for _ in range(_WARM_UP):
            multicast()
        before = inside.traffic()
        payloads = _payloads(inside.store, multicast)
        after = inside.traffic()
        grown = {name: (after[name] - before[name]) / _TIMES for name in after}
        return {
            "multicast to 10: payloads stored": payloads,
            "multicast to 10: store writes": grown["store writes"],
            "multicast to 10: store writes, synced": grown["store writes, synced"],
            "multicast to 10: bytes to the store over the body": grown["bytes to the store"]
            - len(BODY),
            "multicast to 10: Python calls, node": _calls(inside, multicast),
        }


def _payloads(store: CountingStore, call: Callable[[], None]) -> float:
    """Runs the operation `_TIMES` times; returns the payloads that each one stored."""
    write, found = store.write, 0

    def counted(changes: list[Change], *, sync: bool) -> None:
        nonlocal found
        found += sum(key[:1] == layout.BODY and value is not None for key, value in changes)
        write(changes, sync=sync)

    store.write = counted  # type: ignore[method-assign]
    try:
        for _ in range(_TIMES):
            call()
    finally:
        store.write = write  # type: ignore[method-assign]
    return found / _TIMES


def _calls(inside: Inside, call: Callable[[], None]) -> float:
    """The node's calls for one operation, as in ``operations.run`` with `one_by_one`."""
    before = sys.getprofile()
    sys.setprofile(inside.in_client)
    try:
        seen = [inside.in_node.calls]
        for _ in range(_TIMES):
            call()
            seen.append(inside.in_node.calls)
    finally:
        sys.setprofile(before)
    return low([after - first for first, after in pairwise(seen)])

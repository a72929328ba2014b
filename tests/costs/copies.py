"""How often a payload is copied, measured by Python's peak memory during an operation.

tracemalloc sees every buffer that Python makes, of client and node alike, which share one process
here. The peak over an operation, in payloads, is the number of copies that were alive at once: on a
push the client's encoded frame, the node's received one, and either the bodies that the node
decodes to check them, or the record with its checksum for the store. Copies made by ZeroMQ, LevelDB
and the kernel are not included.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Final

import weft
from weft.proto import wire

from .inside import opened

#: Large, so that everything else is small by comparison, and all in one batch.
BODIES: Final = [bytes(1024)] * 1000
PAYLOAD_BYTES: Final = len(wire.encode(wire.Payload(BODIES)))
_TIMES: Final = 4


def measure(data: Path) -> dict[str, float]:
    """Payloads held at once, at most."""
    push: list[float] = []
    pop: list[float] = []
    with opened(data, relayed=False) as inside, weft.connect(inside.address) as client:
        client.create_queue("copies")
        queue = client.queue("copies")
        tracemalloc.start()
        try:
            for _ in range(_TIMES):
                push.append(_peak(lambda: queue.push_many(BODIES)))
                pop.append(_peak(lambda: queue.ack_many(queue.pop_many(len(BODIES)))))
        finally:
            tracemalloc.stop()
    return {
        "batch push: payloads held at once": median(push),
        "batch pop+ack: payloads held at once": median(pop),
    }


def _peak(call: Callable[[], object]) -> float:
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    call()
    return (tracemalloc.get_traced_memory()[1] - before) / PAYLOAD_BYTES

"""The pure engine and the codec on a fixed run, without network, disk or clock.

Used in two ways: by `copies.py` and the tests in their own process, and as a program under
callgrind by `instructions.py`. The run covers a node's work for an operation from the received
frame to the frame to send: decode the call, run the engine, give the changes to a store in memory,
encode the answer. It also covers a client's work: encode the call and its payload, decode the
answer's. Nothing is random, so the counts are the same in every run.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Final

from tests.engine.rig import Asked, Rig
from weft.proto import wire

from .operations import BATCH, BODY

QUEUE: Final = "costs"
PRODUCER: Final = 7
_WARM_UP: Final = 20
#: Operations of a section under callgrind, which is some fifty times slower.
TIMES: Final = {"push": 50, "pop+ack": 50, "batch push": 10, "batch pop+ack": 10}
REFERENCE: Final = "reference"


class EngineRun:
    """One node's engine, and the frames of one client."""

    def __init__(self) -> None:
        self.rig = Rig(partitions=256, cache_bytes=64 << 20, checking=False)
        self.rig.create(QUEUE)
        self._rid = 0

    def push(self, bodies: list[bytes]) -> None:
        self._rid += 1
        request = wire.Push(QUEUE, PRODUCER, self._rid, len(bodies))
        answer, _ = self._exchange(request, wire.encode(wire.Payload(bodies)))
        assert isinstance(answer, wire.Pushed)

    def pop_ack(self, count: int) -> None:
        answer, frames = self._exchange(wire.Pop(QUEUE, count))
        assert isinstance(answer, wire.Popped)
        assert sum(len(wire.decode_payload(frame).bodies) for frame in frames) == count
        receipts = [wire.Receipt(one.partition, one.lsn, one.nonce) for one in answer.lent]
        settled, _ = self._exchange(wire.Ack(QUEUE, receipts))
        assert isinstance(settled, wire.Settled)
        assert not settled.lost

    def _exchange(
        self, request: wire.AnyRequest, *payload: bytes
    ) -> tuple[wire.AnyAnswer, tuple[bytes, ...]]:
        self._rid += 1
        call = wire.decode_call(wire.encode(wire.Call(wire.WIRE_VERSION, self._rid, request, "")))
        (answered,) = self.rig.round(Asked(call.request, payload))
        reply = wire.decode_reply(wire.encode(wire.Reply(call.rid, answered.answer)))
        return reply.answer, tuple(answered.payload)


def operations(run: EngineRun) -> dict[str, Callable[[], None]]:
    return {
        "push": lambda: run.push([BODY]),
        "pop+ack": lambda: run.pop_ack(1),
        "batch push": lambda: run.push(BATCH),
        "batch pop+ack": lambda: run.pop_ack(len(BATCH)),
    }


def reference() -> int:
    """Plain Python of a fixed size: calls, attributes, a dict, a list, an integer.

    The number of instructions depends on how the interpreter was built; therefore the bounds are on
    the ratio to this reference.
    """
    seen: dict[int, list[int]] = {}
    for number in range(1000):
        seen.setdefault(number % 10, []).append(_mixed(number))
    return sum(map(len, seen.values()))


def _mixed(number: int) -> int:
    return (number * 31 + 7) & 0xFFFF


def main() -> None:
    """Run a section for each line of input, after a warm-up of all."""
    gc.disable()
    run = EngineRun()
    calls = {**operations(run), REFERENCE: reference}
    for call in calls.values():
        for _ in range(_WARM_UP):
            call()
    print("ready", flush=True)
    for line in sys.stdin:
        call = calls[line.strip()]
        for _ in range(TIMES.get(line.strip(), 1)):
            call()
        print("done", flush=True)


if __name__ == "__main__":
    main()

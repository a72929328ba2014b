"""Redis streams with a consumer group, through redis-py with its C parser.

Pipelines of 1,000 XADDs; XREADGROUP takes 1,000 entries, and one XACK with all ids is sent in the
same pipeline as the next read. Acknowledged entries stay in the stream, because deletion costs
more.
"""

from __future__ import annotations

from typing import Any, Final

import redis

from .server import Address
from .session import SILENCE_S, Flow, Lost, Session

_GROUP: Final = "bench"
READER: Final = "one"


class RedisStreams(Session):
    def __init__(self, address: Address) -> None:
        self._redis = redis.Redis(host=address["host"], port=address["port"])
        self._bodies: list[bytes] = []

    def create(self, queues: list[str]) -> None:
        pipe = self._redis.pipeline(transaction=False)
        for queue in queues:
            pipe.xgroup_create(queue, _GROUP, id="0", mkstream=True)
        pipe.execute()

    def drop(self, queues: list[str]) -> None:
        self._redis.unlink(*queues)

    def left(self, queues: list[str]) -> int:
        total = 0
        for queue in queues:
            (group,) = self._redis.xinfo_groups(queue)
            total += int(group["pending"]) + int(group["lag"] or 0)
        return total

    def prepare(self, flow: Flow, *, takes: bool) -> None:
        self._redis.ping()
        self._bodies = flow.bodies()

    def produce(self, flow: Flow) -> None:
        for queue, bodies in flow.batches(self._bodies):
            pipe = self._redis.pipeline(transaction=False)
            for body in bodies:
                pipe.execute_command("XADD", queue, "*", "b", body)
            pipe.execute()

    def consume(self, flow: Flow) -> None:
        done = 0
        acks: list[tuple[bytes, list[bytes]]] = []
        read = _read(flow)
        while done < flow.count:
            pipe = self._redis.pipeline(transaction=False)
            for queue, ids in acks:
                pipe.execute_command("XACK", queue, _GROUP, *ids)
            pipe.execute_command(*read)
            answer: Any = pipe.execute()[-1]
            if not answer:
                raise Lost(f"nothing came for {SILENCE_S} s; {done} of {flow.count} were taken")
            acks = [(queue, [entry[0] for entry in entries]) for queue, entries in _pairs(answer)]
            done += sum(len(ids) for _, ids in acks)
        pipe = self._redis.pipeline(transaction=False)
        for queue, ids in acks:
            pipe.execute_command("XACK", queue, _GROUP, *ids)
        pipe.execute()

    def push(self, queue: str, body: bytes) -> None:
        self._redis.execute_command("XADD", queue, "*", "b", body)

    def pop_ack(self, queue: str) -> None:
        answer: Any = self._redis.xreadgroup(_GROUP, READER, {queue: ">"}, count=1)
        ((_, entries),) = _pairs(answer)
        self._redis.execute_command("XACK", queue, _GROUP, entries[0][0])

    def close(self) -> None:
        self._redis.close()


def _read(flow: Flow) -> list[str]:
    block_ms = str(int(SILENCE_S * 1000))
    head = ["XREADGROUP", "GROUP", _GROUP, READER, "COUNT", str(flow.batch), "BLOCK", block_ms]
    return [*head, "STREAMS", *flow.queues, *[">"] * len(flow.queues)]


def _pairs(answer: Any) -> list[tuple[bytes, Any]]:
    """Entries by stream; redis-py returns a list or, with RESP3, a dict."""
    pairs = answer.items() if isinstance(answer, dict) else answer
    return [(stream, entries) for stream, entries in pairs]

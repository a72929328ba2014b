"""Redis lists: the upper bound without acknowledgements. A popped message is deleted immediately.

One RPUSH carries 1,000 bodies and one LPOP takes 1,000: the cheapest operations of Redis.
"""

from __future__ import annotations

import time
from typing import Any, Final

import redis

from .server import Address
from .session import SILENCE_S, Flow, Lost, Session

#: Seconds between polls of an empty list: long enough to leave the processor to the producer.
_PAUSE_S: Final = 0.0005
#: Lists polled in one pipeline.
_LISTS_AT_ONCE: Final = 50


class RedisLists(Session):
    def __init__(self, address: Address) -> None:
        self._redis = redis.Redis(host=address["host"], port=address["port"])
        self._bodies: list[bytes] = []

    def create(self, queues: list[str]) -> None:
        """Does nothing: the first element creates the list."""

    def drop(self, queues: list[str]) -> None:
        self._redis.unlink(*queues)

    def left(self, queues: list[str]) -> int:
        return sum(int(self._redis.llen(queue)) for queue in queues)

    def prepare(self, flow: Flow, *, takes: bool) -> None:
        self._redis.ping()
        self._bodies = flow.bodies()

    def produce(self, flow: Flow) -> None:
        for queue, bodies in flow.batches(self._bodies):
            self._redis.execute_command("RPUSH", queue, *bodies)

    def consume(self, flow: Flow) -> None:
        done, turn, heard = 0, 0, time.monotonic()
        lists = flow.queues
        while done < flow.count:
            some = [lists[(turn + i) % len(lists)] for i in range(min(_LISTS_AT_ONCE, len(lists)))]
            turn += len(some)
            taken = self._take(some, flow.batch)
            if taken:
                done += taken
                heard = time.monotonic()
            elif time.monotonic() - heard > SILENCE_S:
                raise Lost(f"nothing came for {SILENCE_S} s; {done} of {flow.count} were taken")
            elif turn % len(lists) < len(some):  # Every list was polled.
                time.sleep(_PAUSE_S)

    def _take(self, lists: list[str], most: int) -> int:
        if len(lists) == 1:
            answer: Any = self._redis.execute_command("LPOP", lists[0], most)
            return len(answer or ())
        pipe = self._redis.pipeline(transaction=False)
        for name in lists:
            pipe.execute_command("LPOP", name, most)
        return sum(len(answer or ()) for answer in pipe.execute())

    def push(self, queue: str, body: bytes) -> None:
        self._redis.execute_command("RPUSH", queue, body)

    def pop_ack(self, queue: str) -> None:
        if self._redis.execute_command("LPOP", queue) is None:
            raise Lost("a message that was pushed is not there")

    def close(self) -> None:
        self._redis.close()

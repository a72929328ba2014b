"""Fan-out in Redis: one stream, and a consumer group in the place of each queue.

The stream stores a message once. One pipeline acknowledges the last entries of all groups and reads
the next ones; a pipeline that reads nothing is followed by a read that blocks.
"""

from __future__ import annotations

from typing import Any

from .redis_streams import READER, RedisStreams
from .session import SILENCE_S, Flow, Lost


class RedisGroups(RedisStreams):
    def create(self, queues: list[str]) -> None:
        pipe = self._redis.pipeline(transaction=False)
        for queue in queues:
            pipe.xgroup_create(_name(queues), queue, id="0", mkstream=True)
        pipe.execute()

    def drop(self, queues: list[str]) -> None:
        self._redis.unlink(_name(queues))

    def left(self, queues: list[str]) -> int:
        groups: Any = self._redis.xinfo_groups(_name(queues))
        return sum(int(group["pending"]) + int(group["lag"] or 0) for group in groups)

    def produce(self, flow: Flow) -> None:
        stream = _name(flow.queues)
        for _, bodies in flow.batches(self._bodies):
            pipe = self._redis.pipeline(transaction=False)
            for body in bodies:
                pipe.execute_command("XADD", stream, "*", "b", body)
            pipe.execute()

    def consume(self, flow: Flow) -> None:
        stream = _name(flow.queues)
        done = dict.fromkeys(flow.queues, 0)
        acks: dict[str, list[bytes]] = {}
        while sum(done.values()) < flow.count:
            found = self._read(stream, flow, acks, block=False)
            if not any(found.values()):
                behind = min(flow.queues, key=lambda queue: done[queue])
                found = self._read(stream, flow, {}, block=True, only=behind)
                if not found[behind]:
                    raise Lost(f"nothing came for {SILENCE_S} s; {done} were taken")
            acks = found
            for queue, ids in found.items():
                done[queue] += len(ids)
        self._ack(self._redis.pipeline(transaction=False), stream, acks).execute()

    def _read(
        self, stream: str, flow: Flow, acks: dict[str, list[bytes]], *, block: bool, only: str = ""
    ) -> dict[str, list[bytes]]:
        """Acknowledges, then reads; returns the ids of each queue."""
        queues = [only] if only else flow.queues
        wait = ["BLOCK", str(int(SILENCE_S * 1000))] if block else []
        pipe = self._ack(self._redis.pipeline(transaction=False), stream, acks)
        for queue in queues:
            pipe.execute_command(
                "XREADGROUP", "GROUP", queue, READER, "COUNT", str(flow.batch), *wait,
                "STREAMS", stream, ">",
            )  # fmt: skip
        answers = pipe.execute()[-len(queues) :]
        return {queue: _ids(answer) for queue, answer in zip(queues, answers, strict=True)}

    def _ack(self, pipe: Any, stream: str, acks: dict[str, list[bytes]]) -> Any:
        for queue, ids in acks.items():
            if ids:
                pipe.execute_command("XACK", stream, queue, *ids)
        return pipe


def _ids(answer: Any) -> list[bytes]:
    pairs = answer.items() if isinstance(answer, dict) else answer or ()
    return [entry[0] for _, entries in pairs for entry in entries]


def _name(queues: list[str]) -> str:
    return f"{queues[0]}-stream"

"""Kafka through confluent-kafka (librdkafka): one topic of one partition is one queue.

The producer batches (acks=all, idempotent, linger 5 ms) and reports only failures. The consumer
takes prefetched messages and commits the offset after every batch, Kafka's only form of
acknowledgement. Topics are assigned, not subscribed, to exclude the time of joining a group.
"""

from __future__ import annotations

import time
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from .server import Address
from .session import BATCH_COUNT, SILENCE_S, Flow, Lost, Session

_GROUP: Final = "bench"
_WARM_UP: Final = "bench-warm-up"
_ADMIN_S_MAX: Final = 120
_MESSAGE_BYTES_MAX: Final = 8 * 1024 * 1024
#: Maximum of unconfirmed messages: half of the producer's buffer.
_UNCONFIRMED_MAX: Final = 500_000
_UNCONFIRMED_BYTES_MAX: Final = 128 * 1024 * 1024
#: Seconds that `consume` waits for more messages if a batch is incomplete.
_GATHER_S: Final = 0.01
_COMMIT_PER_TOPIC: Final = 50


class KafkaTopics(Session):
    def __init__(self, address: Address) -> None:
        self._servers = {"bootstrap.servers": address["servers"]}
        # Keep the admin client: pending requests are cancelled when the object is collected.
        self._admin: Any = AdminClient(self._servers)
        self._replicas: int = address["replicas"]
        self._producer: Any = None
        self._consumer: Any = None
        self._messages: list[dict[str, bytes]] = []
        self._failed: list[str] = []

    def create(self, queues: list[str]) -> None:
        topics = [NewTopic(queue, 1, self._replicas) for queue in queues]
        made = self._admin.create_topics(topics, operation_timeout=_ADMIN_S_MAX)
        for future in made.values():
            future.result(_ADMIN_S_MAX)

    def drop(self, queues: list[str]) -> None:
        for future in self._admin.delete_topics(queues).values():
            future.result(_ADMIN_S_MAX)

    def left(self, queues: list[str]) -> int:
        consumer = self._take_from(queues)
        places = consumer.committed([TopicPartition(queue, 0) for queue in queues], SILENCE_S)
        ends = [consumer.get_watermark_offsets(place, SILENCE_S)[1] for place in places]
        return sum(
            int(end) - max(0, int(place.offset)) for place, end in zip(places, ends, strict=True)
        )

    def prepare(self, flow: Flow, *, takes: bool) -> None:
        # The dictionaries are the client's own batch format.
        self._messages = [{"value": body} for body in flow.bodies()]
        if takes:
            # A committed-offset query locates the coordinator (0.5 s) outside the measured time.
            consumer = self._take_from(flow.queues)
            consumer.committed([TopicPartition(flow.queues[0], 0)], SILENCE_S)
        else:
            # The first message makes the producer fetch a producer id, outside the measured time.
            self._send_with(5)
            self._producer.list_topics(flow.queues[0], SILENCE_S)
            self._producer.produce(_WARM_UP, b"")
            self._flush()

    def produce(self, flow: Flow) -> None:
        producer = self._producer
        most = min(_UNCONFIRMED_MAX, _UNCONFIRMED_BYTES_MAX // max(1, flow.size))
        left, turn, queues = flow.count, 0, flow.queues
        while left:
            some = self._messages[:left] if left < len(self._messages) else self._messages
            while len(producer) + len(some) > most:
                producer.poll(0.01)
            if producer.produce_batch(queues[turn % len(queues)], some) != len(some):
                raise Lost("Kafka's producer refused messages: its own buffer is full")
            left -= len(some)
            turn += 1
        self._flush()

    def consume(self, flow: Flow) -> None:
        done, heard, uncommitted = 0, time.monotonic(), 0
        # A commit lists every topic: with 1,000 topics, a commit per 1,000 messages is too costly.
        every = max(BATCH_COUNT, _COMMIT_PER_TOPIC * len(flow.queues))
        while done < flow.count:
            some = self._consumer.consume(min(BATCH_COUNT, flow.count - done), _GATHER_S)
            for message in some:
                if message.error() is not None:
                    raise Lost(f"Kafka's consumer: {message.error()}")
            if some:
                done += len(some)
                uncommitted += len(some)
                heard = time.monotonic()
                if uncommitted >= every:
                    uncommitted = 0
                    self._consumer.commit(asynchronous=True)
            elif time.monotonic() - heard > SILENCE_S:
                raise Lost(f"nothing came for {SILENCE_S} s; {done} of {flow.count} were taken")
        self._consumer.commit(asynchronous=False)

    def push(self, queue: str, body: bytes) -> None:
        if self._producer is None:
            self._send_with(0)
        self._producer.produce(queue, body)
        self._flush()

    def pop_ack(self, queue: str) -> None:
        if self._consumer is None:
            self._take_from([queue])
        message = self._consumer.poll(SILENCE_S)
        if message is None or message.error() is not None:
            raise Lost("a message that was pushed is not there")
        self._consumer.commit(message, asynchronous=False)

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        self._consumer = self._producer = self._admin = None

    def _flush(self) -> None:
        if self._producer.flush(SILENCE_S) or self._failed:
            raise Lost(f"Kafka did not confirm all messages: {self._failed[:1]}")

    def _send_with(self, linger_ms: int) -> None:
        self._producer = Producer(
            {
                **self._servers,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": linger_ms,
                "batch.size": 1024 * 1024,
                "batch.num.messages": 10_000,
                "message.max.bytes": _MESSAGE_BYTES_MAX,
                "queue.buffering.max.messages": 2 * _UNCONFIRMED_MAX,
                "queue.buffering.max.kbytes": 2 * _UNCONFIRMED_BYTES_MAX // 1024,
                "delivery.report.only.error": True,
                "on_delivery": lambda error, _: self._failed.append(str(error)),
            }
        )

    def _take_from(self, queues: list[str]) -> Any:
        self._consumer = Consumer(
            {
                **self._servers,
                "group.id": _GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "queued.min.messages": 200_000,
                "fetch.message.max.bytes": _MESSAGE_BYTES_MAX,
                "fetch.error.backoff.ms": 5,
            }
        )
        self._consumer.assign([TopicPartition(queue, 0, 0) for queue in queues])
        return self._consumer

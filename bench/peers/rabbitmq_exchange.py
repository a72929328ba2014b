"""Fan-out through a RabbitMQ exchange of the type fanout, to durable queues."""

from __future__ import annotations

from collections.abc import Iterator

from .rabbitmq_queues import RabbitClassic, RabbitQueues, RabbitQuorum
from .session import Flow


class RabbitExchange(RabbitQueues):
    """The exchange has the name of the first queue, so the publisher finds it."""

    def create(self, queues: list[str]) -> None:
        super().create(queues)
        exchange = _name(queues)
        self._calls().exchange_declare(exchange, "fanout", durable=True)
        for queue in queues:
            self._calls().queue_bind(queue, exchange)

    def drop(self, queues: list[str]) -> None:
        self._calls().exchange_delete(_name(queues))
        super().drop(queues)

    def _messages(self, flow: Flow) -> Iterator[tuple[str, str, bytes]]:
        exchange = _name(flow.queues)
        for _, bodies in flow.batches(self._bodies):
            for body in bodies:
                yield exchange, "", body


class ClassicExchange(RabbitExchange, RabbitClassic):
    pass


class QuorumExchange(RabbitExchange, RabbitQuorum):
    pass


def _name(queues: list[str]) -> str:
    return f"{queues[0]}-exchange"

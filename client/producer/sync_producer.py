"""The synchronous producer: the client's background loop pushes the batches.

`make facade` generates this module from `client/producer/async_producer.py`: do not edit it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import TracebackType

from weft import limits
from weft.client import arguments, tracing
from weft.client.routing.session import ClientSession

from .accumulator import Accumulator, Post, ProducerOptions
from .async_producer import checked
from .batch import Body, Headers, check_body
from .thread_change import ThreadChange


class Producer:
    """Sends messages in background batches. Close the producer, or use `with`: closing flushes.
    Threads may share one producer.

    with queue.producer(linger_ms=5) as producer:
        for line in lines:
            producer.send(line)
    """

    def __init__(
        self,
        session: ClientSession,
        queue: str,
        options: ProducerOptions,
        post: Post,
        on_close: Callable[[Producer], None],
    ) -> None:
        self._queue = queue
        self._traced = tracing.on()
        self._change = ThreadChange()
        self._accumulator = Accumulator(session, queue, options, post, self._change.notify)
        self._on_close = on_close

    def send(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        key: str | None = None,
        delay_ms: int = 0,
        priority: int = 0,
        dedup_key: str | None = None,
        group: str | None = None,
    ) -> None:
        """Accepts a message to push soon. Waits while more than `buffer_bytes` are pending.

            producer.send(b"one", headers={"kind": "order"})

        A `dedup_key` works as for `Queue.push`: the same key again within the queue's window stores
        nothing. A message with a dedup key is pushed as a batch of its own, which costs a node
        about as much as a whole batch without keys. For a grouped queue, `group` names the
        message's group: each group gathers a batch of its own, and keeps its order. Raises the
        error of an earlier batch, and UsageError when the producer is closed.
        """
        if self._accumulator.attention:
            self._heed()
        if self._traced:
            headers = tracing.carry(self._queue, headers)
        plain = headers is None and key is None and (dedup_key is None) and (group is None)
        if plain and delay_ms == 0 == priority:
            if type(body) is not bytes or len(body) > limits.BODY_BYTES_MAX:
                body = check_body(body)
            self._accumulator.put(body)
        else:
            self._accumulator.add(
                *checked(body, headers, key, delay_ms, priority, dedup_key, group)
            )

    def send_many(self, bodies: Iterable[Body]) -> None:
        """Accepts messages from any iterable; much cheaper than single sends.

            producer.send_many(line.encode() for line in file)

        A collection is checked before its first message is accepted. Any other iterable is read
        while it is sent; if the iterable raises, the messages before are sent all the same, except
        for the last piece of up to `batch_count` messages. Raises like `send`.
        """
        arguments.check_iterable("bodies", bodies, "bytes")
        if self._traced:
            for body in bodies:
                self.send(body)
            return
        accumulator = self._accumulator
        written = accumulator.written(bodies)
        for batch in written:
            if accumulator.attention:
                self._heed()
            accumulator.put_batch(batch)
        if written:
            return
        for part, size in accumulator.pieces(bodies):
            if accumulator.attention:
                self._heed()
            accumulator.put_many(part, size)

    def flush(self) -> None:
        """Returns when all sent messages are stored; raises the error of a failed batch."""
        self._accumulator.flush()
        self._change.until(lambda: not self._accumulator.busy)
        self._raise()

    def close(self) -> None:
        """Flushes and accepts no more messages. Raises like `flush`."""
        self._accumulator.close()
        try:
            self.flush()
        finally:
            self._on_close(self)

    def _heed(self) -> None:
        """Raises the error of a failed batch, or waits until there is room."""
        self._raise()
        self._change.until(lambda: not self._accumulator.overfull)

    def _raise(self) -> None:
        failure = self._accumulator.take_failure()
        if failure is not None:
            raise failure

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

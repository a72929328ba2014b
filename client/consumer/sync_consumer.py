"""The synchronous consumer: `for message in queue.consume()`.

`make facade` generates this module from `client/consumer/async_consumer.py`: do not edit it.
"""

from __future__ import annotations

from types import TracebackType

from weft.client import arguments
from weft.errors import WeftError

from .async_consumer import log
from .thread_consumer import ThreadConsumer


class Consumer(ThreadConsumer):
    """Iterates over the messages of a queue. Close the consumer, or use `with`.

    with queue.consume(prefetch=100) as consumer:
        for message in consumer:
            work(message.body)
            message.ack()
            consumer.flush()    # if the ack must be confirmed before the next step

    A message counts as delivered when the iteration yields it. The client holds up to `prefetch`
    more messages; they return uncounted when the consumer ends, even if the process is killed.
    Iterate in one thread; any thread may settle the messages.
    """

    @property
    def lost(self) -> int:
        """Number of messages that are delivered again because the lease ended before the ack."""
        return self.prefetcher.losses.count

    def __iter__(self) -> Consumer:
        return self

    def flush(self) -> None:
        """Returns when every ack so far is confirmed: durable on the node.

        Raises LeaseLost if an ack since the last flush came too late, so that the message is
        delivered again, and any other WeftError that prevented a confirmation. A consumer with
        `on_lost` passes the ids to that function instead and raises nothing.
        """
        self._background.wait(self.prefetcher.flush())

    def drain(self, timeout_s: float = 30) -> int:
        """Stops fetching, waits up to `timeout_s` seconds for messages in hand, flushes, and
        closes.

            left = consumer.drain(timeout_s=10)

        Call `drain` from another thread than the one that works on the messages, or after the last
        message. Returns the number of messages still in hand; the client renews their leases until
        they are settled. Raises like `flush`.
        """
        arguments.check_number("timeout_s", timeout_s, 0, arguments.WAIT_S_MAX)
        self._ended = True
        return self._background.wait(self.prefetcher.drain(timeout_s))

    def close(self) -> None:
        """Flushes the acks and returns messages that were not handed out, uncounted.

        The client renews leases of messages in hand until they are acked or nacked, for
        `renew_for_ms` milliseconds at most, or until the client closes. Raises like `flush`.
        """
        self._ended = True
        if not self.prefetcher.closed:
            self._background.wait(self.prefetcher.close())

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except WeftError as failed:
            log.warning("a consumer was closed: %s", failed.message)

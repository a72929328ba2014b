"""A message of the synchronous client.

`make facade` generates this module from `client/consumer/message.py`: do not edit it.
"""

from __future__ import annotations

from weft.client import arguments
from weft.client.producer.batch import Body, Headers
from weft.client.transport.blocking_link import run

from .message import BaseMessage


class Message(BaseMessage, frozen=True, eq=False, gc=False):
    """A popped message. Ack or nack before the lease ends, or extend the lease.

    message = queue.pop(wait_ms=1000)
    if message is not None:
        work(message.body)
        message.ack()
    """

    def ack(self, *, confirm: bool = False) -> None:
        """Acknowledges the message: done, never delivered again.

        For a message of `pop` or `pop_many`, the ack is durable when the call returns; LeaseLost
        means that the message was, or will be, delivered again. For a message of `consume` or
        `work`, the ack is sent with others a moment later; `consumer.flush()`, `drain()` and
        `close()` wait for the ack and raise LeaseLost if it came too late. With `confirm` the ack
        works as for `pop`.

        Raises AlreadySettled if this client acked or nacked the message before.
        """
        if confirm is not False:
            arguments.check_flag("confirm", confirm)
        owner = self._lease.owner
        run(owner.confirm_acks([self]) if confirm else owner.ack_many([self]))

    def nack(self, *, delay_ms: int = 0, reason: str = "", final: bool = False) -> None:
        """Reports a failure: the message is delivered again after `delay_ms` milliseconds.

        Instead, the message moves to the dead-letter queue after the queue's `max_deliveries`, or
        at once if this failure is `final` and the queue has a dead-letter queue. A dead letter
        keeps the `reason`. An ordered queue delivers a nacked message next and has no delays: there
        `delay_ms` raises InvalidArgument. The nack is durable when the call returns; a stale lease
        raises LeaseLost.
        """
        owner = self._lease.owner
        run(owner.nack_many([self], delay_ms=delay_ms, reason=reason, final=final))

    def extend(self, lease_ms: int) -> None:
        """Extends the lease to `lease_ms` milliseconds from now. Raises LeaseLost."""
        run(self._lease.owner.extend_many([self], lease_ms))

    def reply(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        ack: bool = False,
        timeout_ms: int | None = None,
    ) -> None:
        """Answers a question that another client has pushed with `queue.call`.

            message.reply(b"answer")

        The answer is stored when the call returns. `reply` does not ack the message: ack it
        afterwards, or return from the handler of a worker. If the responder ends in between, the
        question is delivered and answered again, and the caller gets the first answer. With `ack`
        the answer and the acknowledgement happen together, or not at all.

        Raises UsageError if the message is not a question (`reply_to` is None), CallerGone if the
        caller's reply queue is gone, and InvalidArgument and TooLarge for bad arguments; with `ack`
        also LeaseLost and AlreadySettled. The message stays leased after an error.
        """
        run(self._lease.owner.push_reply(self, body, headers, ack, timeout_ms))

"""The asyncio transaction: `async with client.transaction() as tx`."""

from __future__ import annotations

from types import TracebackType

from weft.errors import Busy, LeaseLost, Unavailable, WeftError
from weft.proto import wire

from .effects import TransactionEffects


class AsyncTransaction(TransactionEffects):
    """Acks, pushes and table writes that happen together, or not at all. Use `async with`.

    async with client.transaction() as tx:
        tx.ack(message)
        tx.push("next", body)
        tx.kv.insert("done/7", b"1")

    The end of the block commits; an exception in the block discards all effects. The messages of
    one transaction are on one partition (`weft.lots`). A write with a condition must be on the same
    partition.

    When the commit returns, it is durable: the messages are acknowledged, and effects on the same
    partition are visible. Effects on other partitions follow, usually within milliseconds, each
    once, whatever nodes fail. docs/how-to/exactly-once-pipelines.md has the details.
    """

    async def commit(self, *, timeout_ms: int | None = None) -> None:
        """Commits; at the end of the block the transaction does this by itself.

        Raises LeaseLost if a message is no longer leased, and VersionMismatch if a condition does
        not hold; then nothing has changed. After Unavailable the commit may or may not have been
        executed, and after QueueFull, StorageFull and Overloaded it was not: call `commit` again,
        which executes it once. Without messages that is possible for 4 minutes after the first
        attempt, then UsageError is raised; with messages, LeaseLost has `in_doubt` set after that.
        """
        request = self._prepared()
        if request is None:
            self._committed(None, None)
            return
        timeout_ms = self._timeout_ms(timeout_ms)
        try:
            answer = await self._session.ask(request, wire.Committed, timeout_ms)
        except (Busy, Unavailable):
            raise  # the same request may be sent again
        except LeaseLost as error:
            self._ended = "refused"
            raise self._lease_lost(error) from None
        except WeftError:
            self._ended = "refused"
            raise
        self._committed(request, answer)

    async def __aenter__(self) -> AsyncTransaction:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._ended:
            return
        if kind is None:
            await self.commit()
        elif self._request is None:  # else a commit in the block had no answer: it may be repeated
            self._ended = "aborted"

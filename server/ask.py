"""Ask: the one seam between the edges of a node and its engine.

An edge (gRPC, ZeroMQ) turns what it received into a request of ``weft.proto.wire`` and asks. The
node's own thread answers, once, when the answer may be given: a push when it is durable, a pop
when there is something to lend or its wait is over. Nobody blocks in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from weft.proto import wire

from .who import NOBODY, Who

#: Called once with the answer and its payload frames, from the node's thread. It must not block
#: and must not raise: an asyncio edge hands over with ``loop.call_soon_threadsafe``.
OnAnswer = Callable[[wire.AnyAnswer, Sequence[bytes]], None]


class Ask(Protocol):
    """What an edge needs of a node. Both calls are thread-safe and return at once."""

    def submit(
        self,
        request: wire.AnyRequest,
        payload: Sequence[bytes],
        on_answer: OnAnswer,
        who: Who = NOBODY,
    ) -> int:
        """Asks; returns a ticket that ``cancel`` takes.

        The answer may come before this returns. A refusal is an answer too (``wire.Failure``).
        """
        ...

    def cancel(self, ticket: int) -> None:
        """Nobody waits for this answer any more: it is dropped, and what it lent is given back.

        A ticket that was answered, or never was one, is ignored.
        """
        ...

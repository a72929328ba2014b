"""The node API: the one interface between the edges of a node and its engine.

An edge (gRPC, ZeroMQ) turns each call into a request of ``weft.proto.wire`` and submits the
request. The node's own thread answers, once, when the answer is safe: a push when the push is
durable, a pop when there are messages to lease or the wait is over. No thread blocks in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from weft.proto import wire
from weft.server.security.caller import ANONYMOUS, Caller

#: Called once with the answer and its payload frames, from the node's thread. The callback must not
#: block and must not raise: an asyncio edge hands over with ``loop.call_soon_threadsafe``.
OnAnswer = Callable[[wire.AnyAnswer, Sequence[bytes]], None]


class NodeApi(Protocol):
    """The node as seen by an edge. Both calls are thread-safe and return at once."""

    def submit(
        self,
        request: wire.AnyRequest,
        payload: Sequence[bytes],
        on_answer: OnAnswer,
        who: Caller = ANONYMOUS,
    ) -> int:
        """Submits a request; returns a ticket for ``cancel``.

        The answer may come before `submit` returns. A refusal is an answer too (``wire.Failure``).
        """
        ...

    def cancel(self, ticket: int) -> None:
        """Cancels a request without a caller: drops the answer, and returns the leased messages.

        An answered or unknown ticket is ignored.
        """
        ...

"""The node API for one event loop: awaits answers, and returns leases that no client receives.

A pop can be abandoned at any moment: its client disconnects, its deadline passes, the node drains.
Before the answer, a cancel goes to the node. But the answer may already be on its way from the
node's thread, where ``cancel`` no longer applies; then this module returns the leases, without
counting a delivery, because no client has seen the messages.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Sequence
from typing import TypeVar

from weft.errors import Refused, ShuttingDown, from_code
from weft.proto import wire
from weft.proto.verbs import MESSAGE_WAITS
from weft.server.edges.drain_gate import DrainGate
from weft.server.observability.log import fields
from weft.server.security.access import Access
from weft.server.security.audit import Audit
from weft.server.security.caller import Caller

from .node_api import NodeApi

log = logging.getLogger(__name__)

Kind = TypeVar("Kind", bound=wire.Answer)
_Answered = tuple[wire.AnyAnswer, Sequence[bytes]]

#: The token of the call under way.
TOKEN: contextvars.ContextVar[str] = contextvars.ContextVar("token", default="")
#: The peer address of the call under way.
PEER: contextvars.ContextVar[str] = contextvars.ContextVar("peer", default="")


class AsyncNodeApi:
    def __init__(
        self,
        ask: NodeApi,
        gate: DrainGate,
        access: Access | None = None,
        audit: Audit | None = None,
    ) -> None:
        self._ask = ask
        self._audit = audit
        self._access = access
        self._gate = gate
        self._loop = asyncio.get_running_loop()

    async def ask(self, request: wire.AnyRequest, kind: type[Kind]) -> Kind:
        """The answer to a request without a payload; the answer has no payload either."""
        answer, _ = await self.exchange(request, (), kind)
        return answer

    async def exchange(
        self, request: wire.AnyRequest, payload: Sequence[bytes], kind: type[Kind]
    ) -> tuple[Kind, Sequence[bytes]]:
        """The answer and its payload frames; raises a refusal as the error that the refusal names.

        Every request of every call passes here, including the next pop of a stream, so the token is
        checked here: a revoked token ends a stream at the next pop.
        """
        who = self._who(request)
        future: asyncio.Future[_Answered] = self._loop.create_future()

        def on_answer(answer: wire.AnyAnswer, frames: Sequence[bytes]) -> None:
            try:
                self._loop.call_soon_threadsafe(self._deliver, request, future, answer, frames)
            except RuntimeError:
                # The loop is closed: the node is ending, and its leases end with it.
                log.debug("answer after the end", extra=fields(answer=type(answer).__name__))

        ticket = self._ask.submit(request, payload, on_answer, who)
        answer, frames = await self._answer(request, future, ticket)
        if isinstance(answer, wire.Failure):
            raise from_code(answer.code, answer.message)
        assert isinstance(answer, kind), f"{type(request).__name__} is not answered with {answer}"
        return answer, frames

    def _who(self, request: wire.AnyRequest) -> Caller:
        if self._access is None:
            return Caller(None, PEER.get())
        token = TOKEN.get()
        try:
            return Caller(self._access.check(token, request), PEER.get())
        except Refused as error:
            if self._audit is not None:
                self._audit.refused(Caller(self._access.whose(token), PEER.get()), request, error)
            raise

    async def _answer(
        self, request: wire.AnyRequest, future: asyncio.Future[_Answered], ticket: int
    ) -> _Answered:
        try:
            with self._gate.awaiting(future, idly=type(request) in MESSAGE_WAITS):
                return await future
        except (asyncio.CancelledError, ShuttingDown):
            self._ask.cancel(ticket)
            if future.done() and not future.cancelled() and future.exception() is None:
                # Answered, but cancelled before this task saw the answer.
                self.give_back(request, future.result()[0])
            future.cancel()
            raise

    def _deliver(
        self,
        request: wire.AnyRequest,
        future: asyncio.Future[_Answered],
        answer: wire.AnyAnswer,
        frames: Sequence[bytes],
    ) -> None:
        if future.done():
            self.give_back(request, answer)
        else:
            future.set_result((answer, frames))

    def give_back(self, request: wire.AnyRequest, answer: wire.AnyAnswer) -> None:
        """Returns the messages leased by a pop, when no client is left to take them."""
        if isinstance(request, wire.Pop) and isinstance(answer, wire.Popped):
            leases = [wire.Receipt(lent.partition, lent.lsn, lent.nonce) for lent in answer.lent]
            self.give_back_receipts(request.queue, leases)

    def give_back_receipts(self, queue: str, receipts: list[wire.Receipt]) -> None:
        """Returns messages that no client has seen, without waiting for the result."""
        if receipts:
            self._ask.submit(wire.Nack(queue, receipts, counted=False), (), _log_failure)


def _log_failure(answer: wire.AnyAnswer, _: Sequence[bytes]) -> None:
    if isinstance(answer, wire.Failure):
        # The queue is gone, or the node stops: the leases end either way.
        log.info("could not give leases back", extra=fields(code=answer.code))

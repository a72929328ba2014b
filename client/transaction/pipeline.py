"""Several transactions at once: their commits travel together, each is decided alone."""

from __future__ import annotations

from collections.abc import Sequence

from weft.client.routing.session import ClientSession, ask_all
from weft.client.transport.link import Asked
from weft.errors import LeaseLost, WeftError
from weft.proto import wire

from .effects import TransactionEffects


async def commit_all(
    session: ClientSession,
    transactions: Sequence[TransactionEffects],
    *,
    timeout_ms: int | None = None,
) -> list[WeftError | None]:
    """Commits transactions that are independent of each other; returns what each one raised.

    A transaction that ended with Busy or Unavailable may be committed again, as after `commit`.
    """
    ends: list[WeftError | None] = [None] * len(transactions)
    asked: list[tuple[int, Asked]] = []
    sent: list[tuple[int, wire.Commit]] = []
    for position, transaction in enumerate(transactions):
        request = transaction._prepared()
        if request is None:
            transaction._committed(None, None)
            continue
        asked.append((session.router.place_of(request), (request, ())))
        sent.append((position, request))
    if not asked:
        return ends
    answers = await ask_all(session.router, asked, wire.Committed, session.deadline(timeout_ms))
    for (position, request), answer in zip(sent, answers, strict=True):
        if isinstance(answer, wire.Committed):
            transactions[position]._committed(request, answer)
        elif isinstance(answer, LeaseLost):
            ends[position] = transactions[position]._lease_lost(answer)
        elif isinstance(answer, WeftError):
            ends[position] = answer
        else:
            raise answer
    return ends

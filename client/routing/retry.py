"""Retries a request until there is an answer, a permanent failure, or no time left.

The router chooses the node for each attempt. After a transient failure (the node is busy or
draining, the partition moved, the node is lost) the caller informs the router, and the next attempt
may go to another node under the same name: the cluster deduplicates the batch. Pauses double, with
jitter, so that many clients do not retry at the same time.

A few requests (`proto.idempotence.ONCE`) must not be executed twice: the client retries them only
when it is certain that they were not executed. At the deadline the last failure is raised, because
it is more informative than a timeout. If an earlier attempt may have been executed, the error says
so first.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Final, TypeVar

from weft.client.transport.link import Answered, Asked, Link
from weft.client.transport.pending_calls import NotSent
from weft.errors import (
    Busy,
    DeadlineExceeded,
    MessageLeased,
    NotPrimary,
    ProtocolError,
    ShuttingDown,
    Unavailable,
    WeftError,
    from_code,
)
from weft.proto import wire
from weft.proto.idempotence import ONCE, refused_in_doubt

from .router import Router

PAUSE_S: Final = 0.02
PAUSE_S_MAX: Final = 1.0

#: These errors mean that the request was not executed. After any other transient failure the
#: outcome is unknown.
NOT_DONE: Final = (NotSent, Busy, NotPrimary, ShuttingDown)

A = TypeVar("A", bound=wire.Answer)


def pause_s(tries: int) -> float:
    """Returns the pause after `tries` failures; up to half of it is random."""
    whole = min(PAUSE_S_MAX, PAUSE_S * 2.0 ** min(tries, 16))
    return whole * (0.5 + random.random() / 2)


def passes(request: wire.AnyRequest, failure: WeftError) -> bool:
    """True if the request may be retried after this failure."""
    if type(request) in ONCE:
        return isinstance(failure, NOT_DONE)
    return failure.retriable


async def ask(
    router: Router,
    place: int,
    request: wire.AnyRequest,
    expected: type[A],
    deadline: float,
    payload: Sequence[bytes] = (),
) -> tuple[A, Sequence[wire.Frame]]:
    """Returns the answer, which must be of the expected type; raises a Failure as its error.

    `place` is a partition, or ANY for requests that every node can answer.
    """
    tries = silences = 0
    doubt = False
    while True:
        seen, link = router.view, router.link(place)
        try:
            until = deadline if router.alone else router.until(request, deadline, silences)
            answer, frames = await link.call(request, payload, until)
        except Unavailable as error:
            failure: WeftError = error
            silences += isinstance(error, DeadlineExceeded)
        else:
            if isinstance(answer, expected):
                return answer, frames
            failure = failure_of(answer)
        pause = pause_s(tries)
        if not passes(request, failure) or time.monotonic() + pause >= deadline:
            raise last_word(request, failure, doubt=doubt, outage=router.outage)
        doubt = doubt or not isinstance(failure, NOT_DONE)
        tries += 1
        await router.again(link, failure, seen, pause, deadline)


async def ask_all(
    router: Router, asked: Sequence[tuple[int, Asked]], expected: type[A], deadline: float
) -> list[A | Exception]:
    """Makes several calls at once, each with its place; each ends with an answer or an error."""
    ends: list[A | Exception | None] = [None] * len(asked)
    doubts: set[int] = set()
    tries = silences = 0
    while True:
        seen = router.view
        failures: dict[int, tuple[Link, WeftError]] = {}
        open_ = [position for position, end in enumerate(ends) if end is None]
        pause = pause_s(tries)
        for position, link, answered in await _round(router, asked, open_, deadline, silences):
            request = asked[position][1][0]
            failure = failure_in(answered, expected)
            last = time.monotonic() + pause >= deadline
            if failure is None:
                assert not isinstance(answered, Exception)
                assert isinstance(answered[0], expected)
                ends[position] = answered[0]
            elif last or not isinstance(failure, WeftError) or not passes(request, failure):
                ends[position] = last_word(
                    request, failure, doubt=position in doubts, outage=router.outage
                )
            else:
                failures[id(link)] = (link, failure)
                if not isinstance(failure, NOT_DONE):
                    doubts.add(position)
        if None not in ends:
            return [end for end in ends if end is not None]
        tries += 1
        silences += any(isinstance(failure, DeadlineExceeded) for _, failure in failures.values())
        for link, failure in failures.values():
            await router.again(link, failure, seen, pause / len(failures), deadline)


async def _round(
    router: Router,
    asked: Sequence[tuple[int, Asked]],
    positions: Sequence[int],
    deadline: float,
    silences: int,
) -> list[tuple[int, Link, Answered | Exception]]:
    """Makes one attempt for each position, grouped by node."""
    by_link: dict[int, tuple[Link, list[int]]] = {}
    for position in positions:
        link = router.link(asked[position][0])
        by_link.setdefault(id(link), (link, []))[1].append(position)
    answers = await router.runtime.together(
        [
            _call_all(router, link, [asked[p][1] for p in part], deadline, silences)
            for link, part in by_link.values()
        ]
    )
    return [
        (position, link, answered)
        for (link, part), answered_part in zip(by_link.values(), answers, strict=True)
        for position, answered in zip(part, answered_part, strict=True)
    ]


async def _call_all(
    router: Router, link: Link, asked: Sequence[Asked], deadline: float, silences: int
) -> list[Answered | Exception]:
    try:
        return await link.call_all(asked, router.until(asked[0][0], deadline, silences))
    except Unavailable as error:
        return [error] * len(asked)


async def attempt(
    router: Router,
    link: Link,
    request: wire.AnyRequest,
    expected: type[A],
    deadline: float,
    silences: int = 0,
) -> tuple[A, Sequence[wire.Frame]] | WeftError:
    """Makes one attempt at one node; returns an error, or an unexpected answer, as a value."""
    try:
        answer, frames = await link.call(request, (), router.until(request, deadline, silences))
    except Unavailable as error:
        return error
    return (answer, frames) if isinstance(answer, expected) else failure_of(answer)


def failure_in(answered: Answered | Exception, expected: type[wire.Answer]) -> Exception | None:
    if isinstance(answered, Exception):
        return answered
    return None if isinstance(answered[0], expected) else failure_of(answered[0])


def failure_of(answer: wire.AnyAnswer) -> WeftError:
    if isinstance(answer, wire.Failure):
        return from_code(answer.code, answer.message)
    return ProtocolError(f"the node answered with {type(answer).__name__}, which was not asked for")


def last_word(
    request: wire.AnyRequest, failure: Exception, *, doubt: bool, outage: str = ""
) -> Exception:
    """Returns the error to raise at the end.

    `doubt`: an earlier attempt may have been executed. `outage`: why the cluster cannot serve some
    partitions; an unreachable node is then a consequence, not the cause.
    """
    done = "stored" if isinstance(request, wire.Push) else "done"
    unsure = f"it may or may not have been {done}"
    if outage and isinstance(failure, Unavailable):
        if doubt or not isinstance(failure, NOT_DONE):
            return Unavailable(f"{outage}; {unsure}")
        return Unavailable(f"{outage}; nothing was {done}")
    if doubt and isinstance(failure, MessageLeased):
        return Unavailable(refused_in_doubt(failure.message))
    if not doubt or not isinstance(failure, NOT_DONE):
        return failure
    return DeadlineExceeded(f"no answer in time; {unsure}. At last: {failure.message}")

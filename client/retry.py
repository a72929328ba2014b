"""Asking until there is an answer, a final refusal, or no time left.

Each attempt goes where the router says; after a failure that passes (the node is busy or draining,
the partition moved, the node is lost) the router is told, and the next attempt may go elsewhere,
under the same name: the cluster takes a batch twice as one. Pauses double, with jitter so that many
clients do not come back together.

A few requests (`exchange.ONCE`) must not be done twice: they are made again only when it is sure
that they were not done. When the time is over the last failure is raised, which says more than "too
late"; but if an earlier attempt may have been done, the error says that first.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Final, TypeVar

from weft.errors import (
    Busy,
    DeadlineExceeded,
    NotPrimary,
    ProtocolError,
    ShuttingDown,
    Unavailable,
    WeftError,
    from_code,
)
from weft.proto import wire

from .exchange import ONCE, NotSent
from .link import Answered, Asked, Link
from .router import Router

PAUSE_S: Final = 0.02
PAUSE_S_MAX: Final = 1.0

#: These say that nothing was done. Any other failure that passes leaves it open.
NOT_DONE: Final = (NotSent, Busy, NotPrimary, ShuttingDown)

A = TypeVar("A", bound=wire.Answer)


def pause_s(tries: int) -> float:
    """How long to wait after so many failures: half of it is chance."""
    whole = min(PAUSE_S_MAX, PAUSE_S * 2.0 ** min(tries, 16))
    return whole * (0.5 + random.random() / 2)


def passes(request: wire.AnyRequest, failure: WeftError) -> bool:
    """Whether the request may be made again after this failure."""
    if isinstance(request, ONCE):
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
    """The answer, which must be of the expected kind; a Failure is raised as its error.

    `place` is a partition, or ANY for what every node can answer.
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
            raise last_word(request, failure, doubt=doubt)
        doubt = doubt or not isinstance(failure, NOT_DONE)
        tries += 1
        await router.again(link, failure, seen, pause, deadline)


async def ask_all(
    router: Router, asked: Sequence[tuple[int, Asked]], expected: type[A], deadline: float
) -> list[A | Exception]:
    """Several at once, each with its place. Each ends with its answer or its error."""
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
                ends[position] = last_word(request, failure, doubt=position in doubts)
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
    """One attempt at each of the positions, node by node."""
    by_link: dict[int, tuple[Link, list[int]]] = {}
    for position in positions:
        link = router.link(asked[position][0])
        by_link.setdefault(id(link), (link, []))[1].append(position)
    answers = await router.carrier.together(
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
    """One attempt at one node. No answer, or one that was not asked for, comes as a value."""
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


def last_word(request: wire.AnyRequest, failure: Exception, *, doubt: bool) -> Exception:
    """What to raise at the end; `doubt`: an attempt before this one may have been done."""
    if not doubt or not isinstance(failure, NOT_DONE):
        return failure
    done = "stored" if isinstance(request, wire.Push) else "done"
    return DeadlineExceeded(
        f"no answer in time; it may or may not have been {done}. At last: {failure.message}"
    )

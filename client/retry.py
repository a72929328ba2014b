"""Asking until there is an answer, a final refusal, or no time left.

A link already sends again what a broken connection swallowed. What comes back as a retriable
failure (the queue is full, the node is busy or draining) changed nothing, so any request may be
made again: after a pause that doubles, with jitter so that many clients do not come back together.
When the time is over, the last failure is raised: it says more than "too late".
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Final, TypeVar

from weft.errors import ProtocolError, WeftError, from_code
from weft.proto import wire

from .link import Answered, Asked, Link

PAUSE_S: Final = 0.02
PAUSE_S_MAX: Final = 1.0

A = TypeVar("A", bound=wire.Answer)


def pause_s(tries: int) -> float:
    """How long to wait after so many failures: half of it is chance."""
    whole = min(PAUSE_S_MAX, PAUSE_S * 2.0 ** min(tries, 16))
    return whole * (0.5 + random.random() / 2)


async def ask(
    link: Link,
    request: wire.AnyRequest,
    expected: type[A],
    deadline: float,
    payload: Sequence[bytes] = (),
) -> tuple[A, Sequence[bytes]]:
    """The answer, which must be of the expected kind; a Failure is raised as its error."""
    tries = 0
    while True:
        answer, frames = await link.call(request, payload, deadline)
        if isinstance(answer, expected):
            return answer, frames
        failure = _failure(answer)
        pause = pause_s(tries)
        if not failure.retriable or time.monotonic() + pause >= deadline:
            raise failure
        tries += 1
        await link.sleep(pause)


async def ask_all(
    link: Link, asked: Sequence[Asked], expected: type[A], deadline: float
) -> list[A | Exception]:
    """Several at once. Each ends with its answer or its error: some may have been done."""
    ends: list[A | Exception | None] = [None] * len(asked)
    tries = 0
    while True:
        open_ = [position for position, end in enumerate(ends) if end is None]
        answers = await link.call_all([asked[position] for position in open_], deadline)
        pause = pause_s(tries)
        last = time.monotonic() + pause >= deadline
        for position, answered in zip(open_, answers, strict=True):
            ends[position] = _end(answered, expected, last=last)
        if None not in ends:
            return [end for end in ends if end is not None]
        tries += 1
        await link.sleep(pause)


def _end(answered: Answered | Exception, expected: type[A], *, last: bool) -> A | Exception | None:
    if isinstance(answered, Exception):
        return answered
    answer = answered[0]
    if isinstance(answer, expected):
        return answer
    failure = _failure(answer)
    return None if failure.retriable and not last else failure


def _failure(answer: wire.AnyAnswer) -> WeftError:
    if isinstance(answer, wire.Failure):
        return from_code(answer.code, answer.message)
    return ProtocolError(f"the node answered with {type(answer).__name__}, which was not asked for")

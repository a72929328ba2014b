"""A client's session, and its requests, retried until an answer, a permanent failure or a timeout.

The session is the state shared by the parts of one client: router, timeout, producer id, batch
numbers. A client is a producer with a random id and numbers its batches. A resent push keeps its
number, so a node recognizes the duplicate.

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

import itertools
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

from weft import limits
from weft.client import arguments
from weft.client.transaction.home_numbers import HomeNumbers
from weft.client.transport.link import Answered, Asked, Link
from weft.client.transport.pending_calls import NotSent
from weft.errors import (
    Busy,
    DeadlineExceeded,
    MessageLeased,
    NotPrimary,
    ProtocolError,
    QueueFull,
    ShuttingDown,
    Unavailable,
    WeftError,
    from_code,
)
from weft.ids import PRODUCER_BITS
from weft.pop_search import SearchMemories
from weft.proto import wire
from weft.proto.idempotence import ONCE, refused_in_doubt
from weft.proto.settings import STOCHASTIC

from .router import Router

TIMEOUT_MS: Final = 30_000
PAUSE_S: Final = 0.02
PAUSE_S_MAX: Final = 1.0
#: A node forgets the name of a table write or of a commit `TABLE_NAME_MS` after it was executed. An
#: attempt so long after the first one is the last: the rest is for its way.
RESEND_MS_MAX: Final = limits.TABLE_NAME_MS * 4 // 5

#: These errors mean that the request was not executed. After any other transient failure the
#: outcome is unknown.
NOT_DONE: Final = (NotSent, Busy, NotPrimary, ShuttingDown)

#: Longest pause between two pushes to a full queue.
PAUSE_FULL_S_MAX: Final = 0.25
#: A wait for room at a full buffer, in milliseconds; then the producer waits again.
ROOM_WAIT_MS: Final = 5_000
#: Batch numbers drawn for one batch of a stochastic queue; enough for clusters of a thousand nodes.
DRAWS_MAX: Final = 20_000

A = TypeVar("A", bound=wire.Answer)
#: Waits for room after a push that a full buffer refused: see `wait_for_room`.
AwaitRoom = Callable[[Router, Link, int, wire.AnyRequest, float, float], Awaitable[bool]]


class ClientSession:
    def __init__(self, router: Router, timeout_ms: int = TIMEOUT_MS) -> None:
        arguments.check_timeout(timeout_ms)
        self.router = router
        self.timeout_ms = timeout_ms
        self.trails = SearchMemories()
        self.producer = secrets.randbits(PRODUCER_BITS)
        #: Batch numbers: `next` is atomic between threads.
        self.batches = itertools.count(1)
        #: Batch numbers for pushes of commits.
        self.home_numbers = HomeNumbers(self)
        #: Queues known to be ordered, each in one partition; a recreated queue may not be.
        self.ordered: set[str] = set()
        #: Queues known to be stochastic: their batches stay on one near node.
        self.stochastic: set[str] = set()
        #: Queues that were full once, and are not stochastic.
        self._hashed: set[str] = set()

    def deadline(self, timeout_ms: int | None, wait_ms: int = 0) -> float:
        """Returns the deadline of a call that starts now."""
        if timeout_ms is None:
            timeout_ms = self.timeout_ms
        else:
            arguments.check_timeout(timeout_ms)
        return time.monotonic() + (timeout_ms + wait_ms) / 1000

    def named_timeout_ms(self, timeout_ms: int | None) -> int:
        """The timeout of a named write: a later attempt could be executed as another write."""
        if timeout_ms is None:
            return min(self.timeout_ms, RESEND_MS_MAX)
        arguments.check_timeout(timeout_ms)
        return min(timeout_ms, RESEND_MS_MAX)

    def learn_place(self, queue: str, chosen: int, stored: int) -> None:
        """Learns from an answered push whether a queue is ordered, so that the next push goes to
        the right node at once.

        If the partition that stored the batch is not the one that the client chose, a node
        forwarded the push: the queue is ordered, or is no longer ordered.
        """
        if stored == chosen:
            return
        if stored == self.router.of_text(queue):
            self.ordered.add(queue)
        else:
            self.ordered.discard(queue)

    def learn_kind(self, queue: str, kind: str) -> None:
        """Learns from an answered push whether a queue is stochastic."""
        if kind == STOCHASTIC:
            self.stochastic.add(queue)
        else:
            self.stochastic.discard(queue)

    def next_batch(self, queue: str) -> int:
        """The number of a new batch. For a stochastic queue the number decides that the batch falls
        on a partition of the near node: about as many draws as there are nodes."""
        number = next(self.batches)
        if queue in self.stochastic:
            tries = 1
            while not self.router.is_near(self.producer, number) and tries < DRAWS_MAX:
                number = next(self.batches)
                tries += 1
        return number

    async def ask(self, request: wire.AnyRequest, expected: type[A], timeout_ms: int | None) -> A:
        """For requests and answers without payload frames. The verb table names the place."""
        deadline = self.deadline(timeout_ms)
        place = self.router.place_of(request)
        return (await ask(self.router, place, request, expected, deadline))[0]

    async def push(
        self, place: int, request: wire.Push, frame: bytes, deadline: float
    ) -> wire.Pushed:
        answer = await ask(
            self.router, place, request, wire.Pushed, deadline, (frame,), self.await_room
        )
        return answer[0]

    async def push_all(
        self, pushes: Sequence[tuple[int, Asked]], deadline: float
    ) -> list[wire.Pushed | Exception]:
        """Pushes several batches, each with its place; answers are in the order of the pushes."""
        return await ask_all(self.router, pushes, wire.Pushed, deadline, self.await_room)

    async def await_room(
        self,
        router: Router,
        link: Link,
        place: int,
        push: wire.AnyRequest,
        pause: float,
        deadline: float,
    ) -> bool:
        """After a push that a full queue refused: True if a retry of the same batch makes sense.

        False: the time is over; or the queue turns out to be stochastic, and the batch, numbered
        for any node, belongs on the near node.
        """
        assert isinstance(push, wire.Push)
        queue = push.queue
        if queue in self.stochastic:
            return await wait_for_room(router, link, place, push, pause, deadline)
        if queue not in self._hashed:
            end = await attempt(router, link, wire.DescribeQueue(queue), wire.Queues, deadline)
            if not isinstance(end, WeftError):
                if end[0].queues[0].settings.stochastic:
                    self.stochastic.add(queue)
                    return False
                self._hashed.add(queue)
        left_s = deadline - time.monotonic()
        await router.runtime.sleep(max(0.0, min(pause, PAUSE_FULL_S_MAX, left_s)))
        return True


async def wait_for_room(
    router: Router, link: Link, place: int, push: wire.AnyRequest, pause: float, deadline: float
) -> bool:
    """Waits until the node keeps room for a batch of a stochastic queue; False: the time is over.

    True also if the node cannot tell: the next attempt of the push finds out what to do.
    """
    assert isinstance(push, wire.Push)
    while (left_s := deadline - time.monotonic()) > 0:
        wait_ms = min(ROOM_WAIT_MS, int(left_s * 1000))
        request = wire.Room(push.queue, place, push.producer, push.batch, push.count, wait_ms)
        end = await attempt(router, link, request, wire.Done, deadline)
        if isinstance(end, WeftError):
            if isinstance(end, DeadlineExceeded) and time.monotonic() >= deadline:
                break
            await router.runtime.sleep(min(pause, left_s))
            return True
        if end[0].count:
            return True
    return False


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
    room: AwaitRoom | None = None,
) -> tuple[A, Sequence[wire.Frame]]:
    """Returns the answer, which must be of the expected type; raises a Failure as its error.

    `place` is a partition, or ANY for requests that every node can answer. `room` waits for room
    after a full buffer; without it the request is repeated after a pause.
    """
    tries = silences = 0
    doubt = False
    while True:
        seen, link = router.view, router.table[place] or router.link(place)
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
        if room is None or not isinstance(failure, QueueFull):
            await router.again(link, failure, seen, pause, deadline)
        elif not await room(router, link, place, request, pause, deadline) and not (
            doubt and time.monotonic() < deadline
        ):
            raise last_word(request, failure, doubt=doubt, outage=router.outage)


async def ask_all(
    router: Router,
    asked: Sequence[tuple[int, Asked]],
    expected: type[A],
    deadline: float,
    room: AwaitRoom | None = None,
) -> list[A | Exception]:
    """Makes several calls at once, each with its place; each ends with an answer or an error."""
    ends: list[A | Exception | None] = [None] * len(asked)
    doubts: set[int] = set()
    tries = silences = 0
    while True:
        seen = router.view
        failures: dict[int, tuple[Link, WeftError, int]] = {}
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
                failures[id(link)] = (link, failure, position)
                if not isinstance(failure, NOT_DONE):
                    doubts.add(position)
        if None not in ends:
            return [end for end in ends if end is not None]
        tries += 1
        silences += any(isinstance(each[1], DeadlineExceeded) for each in failures.values())
        for link, failure, position in failures.values():
            if room is not None and isinstance(failure, QueueFull):
                place, (request, _) = asked[position]
                if not await room(router, link, place, request, pause, deadline):
                    ends[position] = last_word(
                        request, failure, doubt=position in doubts, outage=router.outage
                    )
                continue
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
        until = deadline if router.alone else router.until(request, deadline, silences)
        answer, frames = await link.call(request, (), until)
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
    stores = isinstance(request, wire.Push | wire.Multicast | wire.PushTopic)
    done = "stored" if stores else "done"
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

"""Futures of tasks: three fields each, because `map` makes futures by the hundred thousand.

`gc=False` excludes futures from garbage collection, as messages are: no object refers to a future.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import groupby, repeat
from operator import attrgetter
from os.path import commonprefix
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec

from weft.client import arguments
from weft.client.kv_core import KvCore
from weft.client.producer.push import Stored
from weft.client.routing.session import ClientSession
from weft.client.transport.blocking_link import run
from weft.errors import DeadlineExceeded, InvalidArgument, TaskFailed
from weft.ids import INDEX_BITS, MessageId

from .batch_results import BatchResults
from .call import batch_of, progress_key
from .cancellation import cancel_task
from .sites.site_directory import site_queues

if TYPE_CHECKING:
    from .app import App
    from .bundle import Bundle

_INDEX_MASK: Final = (1 << INDEX_BITS) - 1
#: Batches that a collection of futures watches one by one; more are watched by their prefix.
_POLL_S: Final = 20.0
_SMALL: Final = {msgspec.Raw}
_number_of = attrgetter("_number")
_batch_results_of = attrgetter("_batch")


class FutureCore(msgspec.Struct, eq=False, gc=False):
    """A task by its id. Several futures, in any process, may stand for one task."""

    _app: App
    #: Of a future in a bundle, before its push: the bundle, and -1.
    _batch: BatchResults
    _number: int

    @property
    def _pushed_number(self) -> int:
        """The number of the task's id; in a bundle the first use pushes the bundle."""
        if self._number < 0:
            cast("Bundle", self._batch).send()
        return self._number

    @property
    def id(self) -> str:
        """The task's id, 32 hexadecimal digits: `app.future(id)` makes the future anywhere."""
        return str(MessageId(self._pushed_number))

    @property
    def index(self) -> int:
        return self._pushed_number & _INDEX_MASK

    def __repr__(self) -> str:
        if self._number < 0:
            return f"<{type(self).__name__} of {self._app.name}, in a bundle>"
        return f"<{type(self).__name__} {self.id} of {self._app.name}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FutureCore) and self._pushed_number == other._pushed_number

    def __hash__(self) -> int:
        return hash(self._pushed_number)

    async def _result(self, limit_s: float | None) -> Any:
        await self._wait(limit_s)
        return await self._batch.value(MessageId(self._pushed_number), self.index)

    async def _exception(self, limit_s: float | None) -> TaskFailed | None:
        try:
            await self._result(limit_s)
        except TaskFailed as error:
            return error
        return None

    async def _done(self) -> bool:
        index = self.index
        if index not in self._batch.found:
            await self._batch.scan()
        return index in self._batch.found

    async def _cancel(self) -> bool:
        if self.index in self._batch.found:
            return False
        number = MessageId(self._pushed_number)
        queues = self._app.queues
        if self._app.is_sited(queues):
            queues = queues + await site_queues(self._batch.session, queues)
        return await cancel_task(self._batch.session, self._app.name, number, queues)

    async def _progress(self) -> tuple[float, str] | None:
        number = MessageId(self._pushed_number)
        if self._batch.session is None:
            return None
        key = progress_key(self._app.name, number)
        data = await KvCore(self._batch.session).lookup(key)
        return None if data is None else msgspec.msgpack.decode(data, type=tuple[float, str])

    async def _wait(self, limit_s: float | None) -> None:
        index = self.index
        if index not in self._batch.found:
            deadline = deadline_of(limit_s)
            if not await self._batch.wait([index], deadline):
                raise _late(f"task {self.id} has no result", limit_s)


class Future(FutureCore, eq=False, gc=False):
    """The result of a task, now or later.

    future = resize.submit("a.png", 100)
    print(future.id, future.result(timeout=10))
    """

    def result(self, timeout: float | None = None) -> Any:
        """Waits up to `timeout` seconds for the result, and returns the result.

        Raises TaskFailed, or its subclass WorkerLost, TaskTimedOut or TaskCancelled, if the task
        ended without a result, and DeadlineExceeded after the timeout. A result is kept for the
        task's `result_ttl`; later no result comes any more.
        """
        return run(self._result(timeout))

    def exception(self, timeout: float | None = None) -> TaskFailed | None:
        """Waits like `result`; returns the failure, or None for success."""
        return run(self._exception(timeout))

    def done(self) -> bool:
        """True if the task has ended."""
        return run(self._done())

    def cancel(self) -> bool:
        """Cancels the task: `result` raises TaskCancelled then.

        Returns True if the task was waiting. False: the task has ended, or is at a worker. There
        a running task gets a TaskCancelled, and its process is killed 5 s later.
        """
        return run(self._cancel())

    def progress(self) -> tuple[float, str] | None:
        """The last report of the task's `current().progress`, 0 to 1 with a text, or None."""
        return run(self._progress())


class AsyncFuture(FutureCore, eq=False, gc=False):
    """The result of a task, awaited.

    future = await resize.aio.submit("a.png", 100)
    print(await future.result(timeout=10))
    """

    async def result(self, timeout: float | None = None) -> Any:  # noqa: ASYNC109
        """Waits up to `timeout` seconds, and returns the result. Raises like `Future`."""
        return await self._result(timeout)

    async def exception(
        self,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> TaskFailed | None:
        """Waits like `result`; returns the failure, or None for success."""
        return await self._exception(timeout)

    async def done(self) -> bool:
        """True if the task has ended."""
        return await self._done()

    async def cancel(self) -> bool:
        """Cancels the task; see `Future.cancel`."""
        return await self._cancel()

    async def progress(self) -> tuple[float, str] | None:
        """The last report of the task's progress; see `Future.progress`."""
        return await self._progress()


F = TypeVar("F", bound=FutureCore)
_Batches = dict[int, tuple[BatchResults, list[int]]]


def gather(
    futures: Iterable[Future], *, timeout: float | None = None, return_exceptions: bool = False
) -> list[Any]:
    """Waits for all tasks and returns their results in the order of the futures.

        widths = weft.tasks.gather(resize.map(paths, width=100), timeout=60)

    The first failed task raises its TaskFailed; with `return_exceptions` failures are among the
    results instead. Raises DeadlineExceeded after `timeout` seconds.
    """
    return run(gather_core(checked(futures, Future), timeout, return_exceptions))


def as_completed(futures: Iterable[Future], *, timeout: float | None = None) -> Iterator[Future]:
    """Yields the futures as their tasks end. Raises DeadlineExceeded after `timeout` seconds.

    for future in weft.tasks.as_completed(resize.map(paths, width=100)):
        print(future.result())
    """
    collection = Collected(checked(futures, Future), timeout)
    if not collection.left:
        return
    with collection.app.client.kv.watch(collection.prefix) as watch:
        yield from run(collection.scanned())
        while collection.left:
            for change in watch.next_batch(collection.wait_s()):
                if change.resync:
                    yield from run(collection.scanned())
                else:
                    yield from collection.taken(change.key, change.value)


async def gather_core(
    futures: Sequence[FutureCore], limit_s: float | None, return_exceptions: bool
) -> list[Any]:
    deadline = deadline_of(limit_s)
    for batch, numbers in _by_batch(futures).values():
        indexes = [number & _INDEX_MASK for number in numbers]
        if not await batch.wait(indexes, deadline):
            missing = sum(index not in batch.found for index in indexes)
            raise _late(f"{missing} tasks or more have no result", limit_s)
    values: list[Any] = []
    for batch, some in groupby(futures, _batch_results_of):
        part = list(some)
        if len(part) > 1:
            outcomes = [batch.found.get(each & _INDEX_MASK) for each in map(_number_of, part)]
            if set(map(type, outcomes)) == _SMALL:  # the usual case: small results
                values += map(batch.decode, cast("list[msgspec.Raw]", outcomes))
                continue
        for future in part:
            try:
                values.append(await future._result(None))
            except TaskFailed as error:
                if not return_exceptions:
                    raise
                values.append(error)
    return values


async def async_as_completed(
    futures: Iterable[AsyncFuture],
    *,
    timeout: float | None = None,  # noqa: ASYNC109
) -> AsyncIterator[AsyncFuture]:
    """Yields the futures as their tasks end; see `as_completed`."""
    collection = Collected(checked(futures, AsyncFuture), timeout)
    if not collection.left:
        return
    client = await collection.app.aio_client()
    async with client.kv.watch(collection.prefix) as watch:
        for future in await collection.scanned():
            yield future
        while collection.left:
            for change in await watch.next_batch(collection.wait_s()):
                if change.resync:
                    some = await collection.scanned()
                else:
                    some = collection.taken(change.key, change.value)
                for future in some:
                    yield future


async def async_gather(
    futures: Iterable[AsyncFuture],
    *,
    timeout: float | None = None,  # noqa: ASYNC109
    return_exceptions: bool = False,
) -> list[Any]:
    """Waits for all tasks and returns their results in order; see `gather`."""
    return await gather_core(checked(futures, AsyncFuture), timeout, return_exceptions)


class Collected:
    """Futures of which some have not been yielded yet."""

    def __init__(self, futures: Sequence[Any], timeout: float | None) -> None:
        self._timeout = timeout
        self._deadline = deadline_of(timeout)
        self.left: dict[int, Any] = {future._number: future for future in futures}
        apps = {future._app.name: future._app for future in futures}
        if len(apps) > 1:
            raise InvalidArgument("futures must be of one app: call as_completed for each")
        self.app: App = next(iter(apps.values()), None)  # type: ignore[assignment]
        self._batches = _by_batch(futures)
        self._by_prefix = {entry[0].prefix: (key, entry[0]) for key, entry in self._batches.items()}
        # Of characters, not of path components: a prefix of keys.
        self.prefix = commonprefix(list(self._by_prefix))  # noqa: RUF071

    async def scanned(self) -> list[Any]:
        """Reads the results of all incomplete batches."""
        for batch, numbers in self._batches.values():
            if any(number in self.left for number in numbers):
                await batch.scan()
        return [
            each
            for key, (batch, _) in self._batches.items()
            for each in self._ended(key, batch.found)
        ]

    def taken(self, key: str, value: bytes | None) -> list[Any]:
        """Takes a change of the watch; returns the futures of the ended tasks."""
        entry = self._by_prefix.get(key[: key.rfind("/") + 1])
        if entry is None or value is None:
            return []
        number, batch = entry
        return self._ended(number, batch.absorb(value))

    def wait_s(self) -> float:
        if self._deadline is None:
            return _POLL_S
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise _late(f"{len(self.left)} tasks have no result", self._timeout)
        return min(left, _POLL_S)

    def _ended(self, batch: int, indexes: Iterable[int]) -> list[Any]:
        numbers = [batch << INDEX_BITS | index for index in indexes]
        return [self.left.pop(number) for number in numbers if number in self.left]


def futures_of(
    kind: type[F],
    app: App,
    stored: Iterable[Stored],
    result: msgspec.msgpack.Decoder[Any] | None,
    session: ClientSession,
) -> list[F]:
    """The futures of pushed batches. Nothing here costs a Python call for a future."""
    found: list[F] = []
    for first, count in stored:
        batch = repeat(app.results(first, result, session))
        found.extend(map(kind, repeat(app), batch, range(first, first + count)))
    return found


def checked(futures: Iterable[Any], kind: type[F]) -> list[F]:
    arguments.check_iterable("futures", futures, "futures")
    found = list(futures)
    for each in found:
        if not isinstance(each, kind):
            raise arguments.wrong_type("each of futures", f"a {kind.__name__}", each)
        if each._number < 0:
            cast("Bundle", each._batch).send()
    return found


def deadline_of(timeout: float | None) -> float | None:
    if timeout is None:
        return None
    arguments.check_number("timeout", timeout, 0, arguments.WAIT_S_MAX)
    return time.monotonic() + timeout


def _by_batch(futures: Sequence[FutureCore]) -> _Batches:
    found: _Batches = {}
    for batch, some in groupby(futures, _batch_results_of):
        numbers = list(map(_number_of, some))
        key = batch_of(numbers[0])
        if key in found:  # futures made one by one have their own `BatchResults`
            found[key][1].extend(numbers)
        else:
            found[key] = (batch, numbers)
    return found


def _late(what: str, timeout: float | None) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"{what} after {timeout} s: no worker has finished so far, or the result has expired"
    )

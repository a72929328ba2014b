"""A watch of table keys: one long poll at each node that leads watched partitions.

The watch keeps a version for each partition. After a lost connection or a failover it continues
from there, at the partition's present primary; a primary without the history since then reports it,
and the watch passes that on as a change with `resync`. A watch that is not read asks for nothing:
its memory is bounded by one answer of each node, the nodes' by the history of a partition.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

from weft import limits
from weft.errors import InvalidArgument, Unavailable, WeftError
from weft.proto import wire

from . import arguments, kv_batch
from .kv_entry import KvChange
from .routing.cluster_view import ClusterView
from .routing.session import ClientSession, attempt, pause_s
from .transport.link import Link

#: A poll without a change is repeated after this time: a node that vanished without closing its
#: connections is noticed then.
_WAIT_MS: Final = 20_000
#: Asks for a partition's present version.
_NOW: Final = -1
_RESYNC: Final = KvChange("", None, 0, resync=True)

_Poll = Coroutine[Any, Any, tuple[wire.KeyChanges, Sequence[wire.Frame]] | WeftError]


@dataclass(frozen=True)
class WatchOptions:
    """The checked arguments of a watch; `key` is one key instead of a prefix."""

    prefix: str
    key: str | None
    after: Mapping[int, int] | None

    def __post_init__(self) -> None:
        arguments.check_text("prefix", self.prefix, 0, limits.TABLE_KEY_BYTES_MAX)
        if self.key is not None:
            arguments.check_text("key", self.key, 1, limits.TABLE_KEY_BYTES_MAX)
            if self.prefix:
                raise InvalidArgument("key and prefix exclude each other: pass one of them")
        if self.after is not None:
            if not isinstance(self.after, Mapping):
                raise arguments.wrong_type("after", "the position of a watch (a dict)", self.after)
            for number, version in self.after.items():
                arguments.check_integer("each partition of after", number, 0, 1 << 16)
                arguments.check_integer("each version of after", version, 0, limits.NUMBER_MAX)


@dataclass(frozen=True)
class _Asked:
    """A poll under way."""

    link: Link
    numbers: list[int]
    seen: ClusterView


class AsyncKvWatch:
    """The changes of a key, or of all keys with a prefix, without end.

        async with client.kv.watch("session/") as changes:
            async for change in changes:
                print(change.key, change.value)

    The changes of one key come in their order; those of different keys need not. The watch begins
    with `async with`, `start`, or the first change asked for. See `KvChange` for a lost history.
    Iterating raises Unavailable if no node answers for the client's timeout, and PermissionDenied
    if the token does not grant `table` on all keys with the prefix.
    """

    def __init__(
        self,
        session: ClientSession,
        options: WatchOptions,
        on_close: Callable[[AsyncKvWatch], None] = lambda _: None,
    ) -> None:
        self._session = session
        self._options = options
        self._on_close = on_close
        self._buffer: deque[KvChange] = deque()
        self._polls: dict[asyncio.Task[Any], _Asked] = {}
        self._positions: dict[int, int] = {}
        self._since = time.monotonic()  # of the last answer
        self._tries = 0
        self._closed = False

    @property
    def position(self) -> dict[int, int]:
        """Where the watch is: pass it as `after` to a new watch, which goes on from here.

        The position counts the changes in hand as seen: take it between two changes only if the
        changes before it were handled and `pending` is 0.
        """
        return dict(self._positions)

    @property
    def pending(self) -> int:
        """Changes that have arrived and were not iterated yet."""
        return len(self._buffer)

    async def start(self) -> None:
        """Begins the watch: a change that is written after this call is reported."""
        if self._positions:
            return
        router, after = self._session.router, self._options.after or {}
        key = self._options.key
        numbers = range(router.partitions) if key is None else [router.of_text(key)]
        self._positions = {number: after.get(number, _NOW) for number in numbers}
        self._since = time.monotonic()
        while _NOW in self._positions.values():
            await self._step()

    def __aiter__(self) -> AsyncKvWatch:
        return self

    async def __anext__(self) -> KvChange:
        if not self._buffer:
            self._buffer.extend(await self.next_batch())
        if not self._buffer:
            raise StopAsyncIteration
        return self._buffer.popleft()

    async def next_batch(self, wait_s: float | None = None) -> list[KvChange]:
        """Waits for changes and returns them; an empty list after `close`, or if none came within
        `wait_s` seconds."""
        await self.start()
        until = None if wait_s is None else time.monotonic() + wait_s
        while not self._buffer and not self._closed:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not await self._step(left):
                break
        batch = list(self._buffer)
        self._buffer.clear()
        return batch

    async def close(self) -> None:
        """Ends the watch and its waiting requests."""
        self._closed = True
        self._on_close(self)
        polls = list(self._polls)
        self.abandon()
        if polls:
            await asyncio.wait(polls)

    def abandon(self) -> None:
        """Ends the watch without waiting; on its event loop."""
        self._closed = True
        for task in self._polls:
            task.cancel()
        self._polls.clear()

    async def __aenter__(self) -> AsyncKvWatch:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        # The application left the loop with `break`: end the requests that wait at the nodes.
        for task in getattr(self, "_polls", ()):
            if not task.get_loop().is_closed():
                task.cancel()

    # --- inside ---

    async def _step(self, wait_s: float | None = None) -> bool:
        """Waits until one of the polls ends, and takes its answer; False if none ended in time."""
        self._ask()
        done, _ = await asyncio.wait(
            self._polls, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED
        )
        for task in done:
            asked = self._polls.pop(task, None)
            if asked is None:  # closed meanwhile
                return False
            outcome = task.result()
            if isinstance(outcome, WeftError):
                await self._failed(asked, outcome)
            else:
                self._take(asked.numbers, outcome[0])
        return bool(done)

    def _ask(self) -> None:
        """Starts polls for the partitions that no poll has."""
        router, options = self._session.router, self._options
        busy = {number for asked in self._polls.values() for number in asked.numbers}
        free = [number for number in self._positions if number not in busy]
        text = options.prefix if options.key is None else options.key
        for link, numbers in kv_batch.by_link(router, free):
            after = [self._positions[number] for number in numbers]
            request = wire.WatchKeys(numbers, text, after, _WAIT_MS, options.key is not None)
            deadline = self._session.deadline(None, _WAIT_MS)
            poll: _Poll = attempt(router, link, request, wire.KeyChanges, deadline)
            asked = _Asked(link, numbers, router.view)
            self._polls[asyncio.create_task(poll)] = asked

    async def _failed(self, asked: _Asked, failure: WeftError) -> None:
        pause = pause_s(self._tries)
        timeout_s = self._session.timeout_ms / 1000
        if not failure.retriable:
            raise failure
        if time.monotonic() + pause - self._since > timeout_s and not self._polls:
            raise Unavailable(f"the watch had no answer for {timeout_s:.0f} s: {failure.message}")
        self._tries += 1
        router, deadline = self._session.router, self._session.deadline(None)
        await router.again(asked.link, failure, asked.seen, pause, deadline)

    def _take(self, numbers: Sequence[int], answer: wire.KeyChanges) -> None:
        self._since, self._tries = time.monotonic(), 0
        self._positions.update(zip(numbers, answer.positions, strict=True))
        if answer.lost:
            self._buffer.append(_RESYNC)
        self._buffer.extend(
            map(KvChange, answer.keys, answer.values, answer.versions)  # equal lengths on the wire
        )

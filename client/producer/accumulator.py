"""Gathers a producer's messages into batches and pushes the batches in the background.

Any thread may add messages; the event loop pushes batches. A batch leaves when it is full by count
or bytes, when its first message has waited for the linger time, or at a flush. At most `in_flight`
batches are in flight; the others queue. Backpressure: callers wait while more than `buffer_bytes`
are pending (`overfull`). Failures are counted and kept until the next call reports them
(`take_failure`): no message is dropped silently.

One lock is enough: `_lock` guards the buffers and the counts, and is never held while waiting.

Threads wake each other as rarely as possible, because a wake-up costs more than a batch. A caller
wakes the loop only if the loop has room for a push; otherwise the end of a push makes the loop
check the queue. The order of two steps prevents a forgotten batch: `_send` queues the batch and
then checks for room; the loop makes room and then checks the queue. A waiting caller waits until a
quarter of the buffer is free, so not every stored batch wakes the caller.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from weft import limits
from weft.client import arguments
from weft.client.routing.session import ClientSession
from weft.errors import UsageError, WeftError

from . import push
from .batch import Body, Encoded, batches, encode_even, measured
from .batch_buffer import BatchBuffer, Parcel, PushOptions
from .body_source import read_bodies

#: How a callback gets to the event loop: directly, or from another thread.
Post = Callable[..., Any]

LINGER_MS_MAX: Final = 60_000
IN_FLIGHT_MAX: Final = 256
BUFFER_BYTES_MAX: Final = 1 << 34
#: Twice the default limit in flight. Data that waits longer has left the processor's caches when it
#: is sent, and its memory is fresh each time: with four times as much, a batch cost a third more.
BUFFER_BYTES: Final = 16 * limits.MIB
#: Limit on (delay, priority) pairs gathered at once; beyond it buffers are pushed early.
BUFFERS_MAX: Final = 64
#: Limit on batches encoded before the first is sent, so that either all or none are accepted.
WRITTEN_MAX: Final = 16

_PLAIN: Final = PushOptions()


@dataclass(frozen=True)
class ProducerOptions:
    """How a producer gathers its batches."""

    linger_ms: float = 5
    batch_count: int = 1000
    batch_bytes: int = limits.MIB
    in_flight: int = 8
    buffer_bytes: int = BUFFER_BYTES
    timeout_ms: int | None = None

    def __post_init__(self) -> None:
        arguments.check_number("linger_ms", self.linger_ms, 0, LINGER_MS_MAX)
        arguments.check_integer("batch_count", self.batch_count, 1, limits.BATCH_COUNT_MAX)
        arguments.check_integer("batch_bytes", self.batch_bytes, 1, limits.BATCH_BYTES_MAX)
        arguments.check_integer("in_flight", self.in_flight, 1, IN_FLIGHT_MAX)
        arguments.check_integer("buffer_bytes", self.buffer_bytes, 1, BUFFER_BYTES_MAX)
        if self.timeout_ms is not None:
            arguments.check_timeout(self.timeout_ms)


class Accumulator:
    def __init__(
        self,
        session: ClientSession,
        queue: str,
        options: ProducerOptions,
        post: Post,
        on_change: Callable[[], None],
    ) -> None:
        self._session = session
        self._queue = queue
        self._options = options
        self._count_max = options.batch_count
        self._bytes_max = options.batch_bytes
        self._room_bytes = options.buffer_bytes * 3 // 4
        self._post = post
        self._on_change = on_change
        self._lock = threading.Lock()
        self._plain = BatchBuffer(_PLAIN)
        self._buffers: dict[PushOptions, BatchBuffer] = {_PLAIN: self._plain}
        self._lingering = False
        self._waiting: deque[Parcel] = deque()
        #: True if the loop is scheduled to check the queue.
        self._called = False
        self._tasks: set[asyncio.Task[None]] = set()
        #: On the event loop alone: the groups with a batch in flight, with the batches behind it,
        #: and batches whose group has no other in flight any more.
        self._groups: dict[str, deque[Parcel]] = {}
        self._released: deque[Parcel] = deque()
        self._pending_bytes = 0
        self._pending = 0
        self._error: BaseException | None = None
        self._failed = 0
        self.closed = False
        #: Callers are too far ahead and have not been notified of room since.
        self.overfull = False
        #: True if callers must act: closed, overfull, or a failure.
        self.attention = False

    # --- from any thread ---

    @property
    def busy(self) -> bool:
        """True if a batch was sent and has not ended."""
        return self._pending > 0

    def put(self, body: bytes) -> None:
        """Adds a checked body without headers or options: the fast path for most messages."""
        with self._lock:
            buffer = self._plain
            bodies = buffer.bodies
            bodies.append(body)
            buffer.size += len(body)
            count = len(bodies)
            if count == 1 or count >= self._count_max or buffer.size >= self._bytes_max:
                self._grown(buffer, count)

    def add(
        self,
        body: bytes,
        headers: dict[str, str] | None,
        key: str | None,
        options: PushOptions,
        dedup_key: str | None = None,
    ) -> None:
        with self._lock:
            buffer = self._buffer(options)
            before = len(buffer.bodies)
            buffer.add(body, headers, key, dedup_key)
            self._grown(buffer, before + 1)

    def put_many(self, bodies: list[bytes], size: int) -> None:
        """Adds one piece from `parts`, with its size in bytes."""
        with self._lock:
            before = len(self._plain.bodies)
            self._plain.extend(bodies, size)
            self._grown(self._plain, 1 if not before else before + len(bodies))

    def put_batch(self, batch: Encoded) -> None:
        """Queues an encoded batch, after the messages gathered before."""
        with self._lock:
            self._check_open()
            if self._plain.bodies:
                self._send_off(self._plain)
            self._send(Parcel(batch, len(batch.frame), _PLAIN))

    def written(self, bodies: Iterable[Body]) -> list[Encoded]:
        """Encodes the bodies as full batches, if all have one length and fill whole batches.

        Otherwise returns an empty list; the caller then checks and gathers the bodies.
        """
        if type(bodies) is not list:
            return []
        step = self._options.batch_count
        count = len(bodies)
        if count % step or not 0 < count <= WRITTEN_MAX * step:
            return []
        found: list[Encoded] = []
        for start in range(0, count, step):
            batch = encode_even(bodies if count == step else bodies[start : start + step])
            if batch is None or len(batch.frame) > self._bytes_max:
                return []
            found.append(batch)
        return found

    def pieces(self, bodies: Iterable[Body]) -> Iterator[tuple[list[bytes], int]]:
        """Splits bodies into pieces of about one batch each, with their sizes in bytes.

        A collection is checked before the first piece is yielded; any other iterable is read while
        it is sent.
        """
        if isinstance(bodies, Collection):
            yield from self.parts(*measured(bodies))
            return
        arguments.check_iterable("bodies", bodies, "bytes")
        iterator = iter(bodies)
        while piece := read_bodies(iterator, self._count_max, self._bytes_max):
            yield piece, sum(map(len, piece))

    def parts(self, bodies: list[bytes], size: int) -> Iterator[tuple[list[bytes], int]]:
        """Splits bodies of `size` bytes in total into pieces of about one batch each."""
        if not bodies:
            return
        count = len(bodies)
        average = max(1, size // count)
        step = max(1, min(self._options.batch_count, self._options.batch_bytes // average))
        if step >= count:
            yield bodies, size
            return
        for start in range(0, count, step):
            part = bodies[start : start + step]
            yield part, sum(map(len, part))

    def flush(self) -> None:
        """Sends all gathered messages; `busy` becomes False when all have ended."""
        with self._lock:
            self._send_all()

    def close(self) -> None:
        """Sends all gathered messages and accepts no more."""
        with self._lock:
            self.closed = self.attention = True
            self._send_all()

    def take_failure(self) -> WeftError | None:
        """Returns the failure since the last call, once."""
        with self._lock:
            error, failed = self._error, self._failed
            self._error, self._failed = None, 0
            self._update_attention()
        if error is None:
            return None
        kind = type(error) if isinstance(error, WeftError) else WeftError
        said = error.message if isinstance(error, WeftError) else repr(error)
        failure = kind(
            f"{failed} message{'s' if failed > 1 else ''} sent to {self._queue} before this call "
            f"{'were' if failed > 1 else 'was'} not stored: {said}"
        )
        failure.__cause__ = error
        return failure

    # --- under the lock ---

    def _update_attention(self) -> None:
        self.attention = self.closed or self.overfull or self._error is not None

    def _grown(self, buffer: BatchBuffer, count: int) -> None:
        """Handles a buffer that has its first message or is full."""
        if count == 1:
            if self.closed:  # a closed accumulator has empty buffers, so count is 1
                buffer.take()
            self._check_open()
            buffer.born = time.monotonic()
        if len(buffer.bodies) >= self._count_max or buffer.size >= self._bytes_max:
            self._send_off(buffer)
        elif not self._lingering:
            self._lingering = True
            self._post(self._start_linger)

    def _check_open(self) -> None:
        if self.closed:
            raise UsageError("the producer is closed")

    def _send_all(self) -> None:
        for buffer in self._buffers.values():
            if buffer.bodies:
                self._send_off(buffer)

    def _buffer(self, options: PushOptions) -> BatchBuffer:
        buffer = self._buffers.get(options)
        if buffer is None:
            if len(self._buffers) >= BUFFERS_MAX:
                self._make_room()
            buffer = self._buffers[options] = BatchBuffer(options)
        return buffer

    def _make_room(self) -> None:
        for options, buffer in list(self._buffers.items()):
            if buffer.bodies:
                self._send_off(buffer)
            if options != _PLAIN:
                del self._buffers[options]

    def _send_off(self, buffer: BatchBuffer) -> None:
        self._send(buffer.take())

    def _send(self, parcel: Parcel) -> None:
        self._pending += 1
        self._pending_bytes += parcel.size
        if self._pending_bytes > self._options.buffer_bytes:
            self.overfull = True
        self._update_attention()
        self._waiting.append(parcel)
        if not self._called and len(self._tasks) < self._options.in_flight:
            self._called = True
            self._post(self._accept)

    # --- on the event loop ---

    def _accept(self) -> None:
        self._called = False  # before the check: a batch queued after it posts again
        self._start()

    def _start(self) -> None:
        while len(self._tasks) < self._options.in_flight:
            parcel = self._next()
            if parcel is None:
                return  # nothing waits, or only behind batches in flight
            task = asyncio.ensure_future(self._push(parcel))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _next(self) -> Parcel | None:
        """The next batch to push. A batch waits while another one of its group is in flight: a
        retry must not reorder the group."""
        if self._released:
            return self._released.popleft()
        while self._waiting:
            parcel = self._waiting.popleft()
            group = parcel.options.group
            if group is None:
                return parcel
            if group not in self._groups:
                self._groups[group] = deque()
                return parcel
            self._groups[group].append(parcel)
        return None

    def _release(self, group: str) -> None:
        """A batch of the group has ended: the next one of the group may follow."""
        behind = self._groups[group]
        if behind:
            self._released.append(behind.popleft())
        else:
            del self._groups[group]

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._start()

    async def _push(self, parcel: Parcel) -> None:
        content, size, (delay_ms, priority, group) = parcel
        stored: list[push.Stored] = []
        error: BaseException | None = None
        deadline = self._session.deadline(self._options.timeout_ms)
        try:
            stored, error = await push.store(
                self._session, self._queue,
                iter((content,)) if isinstance(content, Encoded) else batches(content, size),
                delay_ms, priority, deadline, group,
            )  # fmt: skip
        except asyncio.CancelledError as cancelled:
            error = cancelled
            raise
        except Exception as other:
            error = other  # raised to the next caller: no code awaits this task
        finally:
            if group is not None:
                self._release(group)
            with self._lock:
                self._pending -= 1
                self._pending_bytes -= size
                if error is not None:
                    self._error = self._error or error
                    self._failed += parcel.messages - sum(some.messages for some in stored)
                tell = error is not None or not self._pending
                if self.overfull and self._pending_bytes <= self._room_bytes:
                    self.overfull, tell = False, True
                self._update_attention()
            if tell:
                self._on_change()

    def _start_linger(self) -> None:
        asyncio.get_running_loop().call_later(self._options.linger_ms / 1000, self._linger_over)

    def _linger_over(self) -> None:
        """Sends buffers that waited for the linger time; reschedules while buffers fill."""
        linger_s = self._options.linger_ms / 1000
        with self._lock:
            now = time.monotonic()
            born = [buffer.born for buffer in self._buffers.values() if buffer.bodies]
            for buffer in self._buffers.values():
                if buffer.bodies and now - buffer.born >= linger_s * 0.9:
                    self._send_off(buffer)
            self._lingering = bool(born)
        if born:
            # Also when all were sent: while messages keep coming, no caller has to wake the loop.
            left = [when + linger_s - now for when in born if now - when < linger_s * 0.9]
            delay = max(0.0005, min(left, default=linger_s))
            asyncio.get_running_loop().call_later(delay, self._linger_over)

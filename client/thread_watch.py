"""The watch of the synchronous client: the client's background loop asks the nodes."""

from __future__ import annotations

from types import TracebackType

from .background import Background
from .kv_entry import KvChange
from .kv_watch import AsyncKvWatch, WatchOptions


class KvWatch:
    """The changes of a key, or of all keys with a prefix, without end.

        with client.kv.watch("session/") as changes:
            for change in changes:
                print(change.key, change.value)

    The watch begins when it is made. The changes of one key come in their order; those of different
    keys need not. See `KvChange` for a lost history. Iterate in one thread; `close` may be called
    from another. Iterating raises Unavailable if no node answers for the client's timeout, and
    PermissionDenied if the token does not grant `table` on all keys with the prefix.
    """

    def __init__(self, background: Background, options: WatchOptions) -> None:
        self._background = background
        self._watch = AsyncKvWatch(background.session, options)
        self._batch: list[KvChange] = []
        background.wait(self._watch.start())

    @property
    def position(self) -> dict[int, int]:
        """Where the watch is: pass it as `after` to a new watch, when `pending` is 0."""
        return self._watch.position

    @property
    def pending(self) -> int:
        """Changes that have arrived and were not iterated yet."""
        return len(self._batch) + self._watch.pending

    def __iter__(self) -> KvWatch:
        return self

    def __next__(self) -> KvChange:
        if not self._batch:
            self._batch = self._background.wait(self._watch.next_batch())
            self._batch.reverse()
        if not self._batch:
            raise StopIteration
        return self._batch.pop()

    def next_batch(self, wait_s: float | None = None) -> list[KvChange]:
        """Waits for changes and returns them; an empty list after `close`, or if none came within
        `wait_s` seconds."""
        if self._batch:
            batch, self._batch = self._batch[::-1], []
            return batch
        return self._background.wait(self._watch.next_batch(wait_s))

    def close(self) -> None:
        """Ends the watch and its waiting requests."""
        if self._background.running:
            self._background.wait(self._watch.close())

    def __enter__(self) -> KvWatch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # The application left the loop with `break`, so nothing else can close the watch.
        watch = getattr(self, "_watch", None)
        if watch is not None and self._background.running:
            self._background.post(watch.abandon)

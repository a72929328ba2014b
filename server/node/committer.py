"""The committer: persists the output of each round, then has it sent.

| strategy   | used for                                           | when the output leaves        |
|------------|----------------------------------------------------|-------------------------------|
| inline     | short writes, writes without a sync, a single push | in the round, after the write |
| background | a single-node cluster: a long synced write, and    | when the write that contains  |
|            | all rounds while such a write is in flight         | the round has ended           |
| replicated | a cluster of several nodes: as inline, after all   | in the round; answers wait in |
|            | background writes                                  | the commit gate for others    |

Only a single-node cluster may write in the background: every answer there rests on this node's own
writes, in their order. In a larger cluster the messages to other nodes rest on the write, too.

Invariant: `send` gets an answer or a message only after every write that it rests on is on disk
(`Ready`). An error of the store leaves `commit` as a StorageError, and nothing more is sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from weft.dht.messages import AnyMessage
from weft.limits import KIB
from weft.persistence.background_writer import BackgroundWriter
from weft.persistence.layout import NODE
from weft.persistence.store import Change, Store
from weft.server.core.ready import Ready
from weft.server.edges.edge import ROUND_BYTES_MAX
from weft.server.engine.state import Answered
from weft.server.observability.histogram import Histogram

from .disk_reserve import DiskReserve

#: A synced write of at least this size goes to the background writer. The hand-off wakes two
#: threads, and the node's thread handles requests meanwhile; a smaller write ends before they are
#: awake.
BACKGROUND_BYTES_MIN: Final = 64 * KIB

Send = Callable[[Sequence[tuple[str, AnyMessage]], Sequence[Answered]], None]


class Committer:
    def __init__(
        self,
        store: Store,
        background_writer: BackgroundWriter,
        disk_reserve: DiskReserve,
        send: Send,
        *,
        sync: bool,
    ) -> None:
        self._store = store
        self._writer = background_writer
        self._disk_reserve = disk_reserve
        self._send = send
        #: True: every write is synced. False: only promises and votes of this node are.
        self._sync = sync
        #: Answers that wait for the background write in flight, and for the next one.
        self._owed: list[Answered] = []
        self._owed_next: list[Answered] = []
        #: Number of writes.
        self.writes = 0
        self.fsync_times = Histogram()

    def commit(self, ready: Ready, *, single: bool) -> None:
        """Commits one round. `single`: this node is its whole cluster."""
        if single and (self._writer.busy or (self._sync and _is_long(ready.writes))):
            self._commit_in_background(ready)
        else:
            self.flush()
            self.commit_inline(ready)

    def commit_inline(self, ready: Ready) -> None:
        """Writes, sends, and then updates the stats, so that no caller waits for the stats."""
        writes = ready.writes
        if not writes:
            self._send(ready.sends, ready.answers)
            return
        sync = self._is_synced(writes)
        began = time.perf_counter()
        self._store.write(writes, sync=sync)
        took = time.perf_counter() - began
        self._send(ready.sends, ready.answers)
        self.writes += 1
        if sync:
            self.fsync_times.observe(took)
        self._disk_reserve.written(sum([len(value) for _, value in writes if value]))

    def flush(self) -> None:
        """Finishes all background writes, and sends their answers."""
        while self._writer.busy:
            self.written()

    def written(self) -> None:
        """Waits for the background write in flight, begins the next, and sends the answers owed."""
        took = self._writer.settle()
        self.writes += 1
        if self._sync:
            self.fsync_times.observe(took)
        answers, self._owed = self._owed, self._owed_next
        self._owed_next = []
        if self._writer.gathered:
            self._writer.begin()
        else:
            answers += self._owed
            self._owed = []
        self._send([], answers)

    def _commit_in_background(self, ready: Ready) -> None:
        """Gives the round's writes to the background writer, now or with its next write."""
        writer = self._writer
        if ready.writes:
            before = writer.gathered_bytes
            writer.gather(ready.writes, sync=self._is_synced(ready.writes))
            self._disk_reserve.written(writer.gathered_bytes - before)
        if writer.gathered:
            self._owed_next += ready.answers
        else:
            self._owed += ready.answers  # they rest on changes handed over before
        if not writer.busy:
            writer.begin()
            self._owed, self._owed_next = self._owed_next, []
        elif writer.gathered_bytes >= ROUND_BYTES_MAX:
            self.written()
        if ready.sends:
            self.flush()
            self._send(ready.sends, [])

    def _is_synced(self, writes: list[Change]) -> bool:
        # Promises and votes of a node are synced at any durability of messages.
        return self._sync or any(key[:1] == NODE for key, _ in writes)


def _is_long(writes: list[Change]) -> bool:
    """True if the write takes long enough to be worth waking another thread."""
    return sum([len(value) for _, value in writes if value]) >= BACKGROUND_BYTES_MIN

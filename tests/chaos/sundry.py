"""The rest of the load: delayed pushes, an ordered queue, dead letters and the hash table.

One worker does all of it, in turns. The checker judges its messages with those of the others.
Properties that the checker does not know are asserted here: order, and that the table has the last
value written.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any, Final

import weft
from tests.process.load import bodies_of, name_of
from weft.client.consumer.sync_message import Message
from weft.client.sync_queue import Queue
from weft.errors import LeaseLost, WeftError

from .journal import Journal
from .worker import LEASE_MS, Pace

KEYS: Final = 50
#: Values are started anew when they reach this size.
VALUE_BYTES_MAX: Final = 200
DELAY_MS_MAX: Final = 3_000
LOT: Final = 5


def queues_of(name: str) -> dict[str, dict[str, Any]]:
    """The queues of one cycle with their settings; a queue that names another comes first."""
    return {
        name: {},
        f"{name}.ordered": {"ordered": True},
        f"{name}.frail": {"max_deliveries": 2, "dead_letter": f"{name}.dead"},
        f"{name}.dead": {},
    }


class Sundry:
    def __init__(
        self, number: int, queue: str, journal: Journal, pace: Pace, servers: list[str]
    ) -> None:
        self._number = number
        self._journal = journal
        self._pace = pace
        self._rng = random.Random()
        client = weft.connect(servers)
        self._kv = client.kv
        self._main, self._ordered, self._frail, self._dead = map(client.queue, queues_of(queue))
        self._batch = 0
        #: Possible values of each key: more than one after an unanswered call.
        self._table: dict[str, set[bytes | None]] = {
            f"{queue}-{n}": {None} for n in range(KEYS)
        }  # fmt: skip
        #: Places of ordered messages, places that may not have been stored, and the last place
        #: received.
        self._places: dict[str, int] = {}
        self._maybe: set[int] = set()
        self._reached = -1
        self._turns: list[Callable[[], None]] = [
            self._delayed, self._in_order, self._frailly, self._register,
        ]  # fmt: skip

    def step(self) -> None:
        turn = self._turns.pop(0)
        self._turns.append(turn)
        try:
            turn()
        except WeftError as error:
            if not error.retriable and not isinstance(error, LeaseLost):
                raise
            self._journal.counts["unanswered"] += 1
        time.sleep(self._rng.random() * self._pace.pause_s_max)

    def _push(self, queue: Queue, **options: Any) -> str:
        self._batch += 1
        (body,) = bodies_of(self._number, self._batch, 1)
        name = name_of(body)
        self._journal.attempted(name)
        queue.push(body, **options)
        self._journal.acknowledged(name)
        self._journal.counts["sundry pushes"] += 1
        return name

    def _pop(self, queue: Queue) -> list[tuple[str, Message]]:
        began = time.monotonic()
        found = []
        for message in queue.pop_many(LOT, wait_ms=50, lease_ms=LEASE_MS):
            lent = message._lease.lent
            name, place = name_of(message.body), f"{lent.partition}/{lent.lsn}/{message._index}"
            self._journal.delivered(name, id=place, began=began, lease_s=message.lease_ms / 1000)
            found.append((name, message))
        return found

    def _ack(self, queue: Queue, found: list[tuple[str, Message]]) -> None:
        names = [name for name, _ in found]
        self._journal.ack_attempted(*names)
        queue.ack_many([message for _, message in found])
        self._journal.ack_confirmed(*names)

    def _delayed(self) -> None:
        """Other consumers pop the message, later."""
        self._push(self._main, delay_ms=self._rng.randrange(DELAY_MS_MAX))

    def _in_order(self) -> None:
        place = len(self._places)
        self._places[f"{self._number}-{self._batch + 1}-0"] = place
        self._maybe.add(place)
        self._push(self._ordered)
        self._maybe.discard(place)
        found = self._pop(self._ordered)
        for name, _ in found:
            at = self._places[name]
            skipped = set(range(self._reached + 1, at)) - self._maybe
            assert not skipped, f"{name} came before {len(skipped)} that are ahead of it"
            self._reached = max(self._reached, at)
        if found:
            self._ack(self._ordered, found)

    def _frailly(self) -> None:
        """A message refused twice becomes a dead letter, and is acked as one."""
        self._push(self._frail)
        found = self._pop(self._frail)
        if found:
            self._journal.nacked(*(name for name, _ in found))
            self._frail.nack_many([message for _, message in found])
        if dead := self._pop(self._dead):
            self._ack(self._dead, dead)

    def _register(self) -> None:
        key = self._rng.choice(list(self._table))
        may = self._table[key]
        seen = self._kv.lookup(key)
        assert seen in may, f"{key} holds {seen!r}, which is none of {may}"
        may.intersection_update({seen})
        self._batch += 1
        word = b"%d " % self._batch
        if seen is None or len(seen) > VALUE_BYTES_MAX:
            may.add(word)
            self._kv.insert(key, word)
            self._table[key] = {word}
        elif self._rng.random() < 0.5:
            may.add(seen + word)
            self._kv.append(key, word)
            self._table[key] = {seen + word}
        else:
            may.add(None)
            swap = self._kv.compare_and_swap(key, seen, None)
            assert swap.swapped, f"{key} held {seen!r}, then {swap.current!r}"
            self._table[key] = {None}
        self._journal.counts["table verbs"] += 2

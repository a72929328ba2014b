"""The MessageId queue of a queue with tenants: pops take the messages of tenants in fair turns.

A push may name its tenant: a customer, a team. While several tenants have messages in a queue, pops
get as many messages of each, however many are waiting: a tenant with a backlog delays only itself.
Paper 2's accounts of credit (`weft.credit_buckets`) choose the tenant; a tenant pays with one
credit for each message that a pop gets. Users measure the time that a message waits, so tenants are
divided here, at the pop, and not where a node accepts requests.

A batch has one tenant. Messages without a tenant share the tenant "". Priorities come first: a
message of a higher priority is taken before all others, of any tenant, and each priority has its
own credits. The order of one tenant's messages is that of `MessageIdQueue`.

A queue gets this list with its first push with a tenant (`QueueState.see_tenant`); other queues
keep their class and their cost. The entries that are listed at that moment belong to the tenant "".

Subscriptions and `peek` read messages by age, regardless of tenants. Credits are in memory: after a
restart or a failover, all tenants start with the same credit.

Invariants:

- `levels` has each list of a tenant and a priority once, the highest priority first.
- An account is in the buckets of its priority if and only if its list is `listed`, except for the
  account of the last `take`, which is charged and put back by the next call.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, groupby
from typing import Final

from weft.credit_buckets import Account, CreditBuckets

from .message_id_queue import WHOLE, Handle, IdEntry, Level, MessageIdQueue

#: The credit of each tenant per period, in messages. A batch above the credit puts the tenant into
#: debt, so batches of any size are shared out fairly.
QUANTUM: Final = 100
#: Lists without messages are kept for the debt of their tenants, up to as many as this and as there
#: are others.
IDLE_MAX: Final = 1024

#: The tenant and the number of messages of an entry.
Describe = Callable[[IdEntry], tuple[str, int]]


class TenantLevel(Level):
    """The waiting entries of one tenant with one priority."""

    __slots__ = ("account", "listed", "tenant")

    def __init__(self, tenant: str, priority: int) -> None:
        super().__init__(priority)
        self.tenant = tenant
        self.account: Account[TenantLevel] = Account(self, QUANTUM)
        self.listed = False

    @property
    def is_empty(self) -> bool:
        return not (self.fresh or self.returned)


class TenantQueue(MessageIdQueue):
    def __init__(self, describe: Describe, before: MessageIdQueue) -> None:
        """Takes over the entries of `before`, which had no tenants."""
        super().__init__()
        self._describe = describe
        self._by_name: dict[tuple[str, int], TenantLevel] = {}
        self._buckets: dict[int, CreditBuckets[TenantLevel]] = {}
        #: The list of the last `take`, and the messages taken.
        self._taken: TenantLevel | None = None
        self._messages = 0
        self._tidy_at = IDLE_MAX
        self._delayed = before._delayed
        for level in before.levels:
            mine = self._of("", level.priority)
            mine.fresh, mine.returned = level.fresh, level.returned
            self._list(mine)

    # --- entries --------------------------------------------------------------------------

    def add_fresh(self, priority: int, batch_handle: int) -> None:
        tenant, _ = self._describe(IdEntry(batch_handle, WHOLE))
        level = self._of(tenant, priority)
        if level.fresh and batch_handle < level.fresh[-1]:  # recovery has no order
            heapq.heappush(level.returned, IdEntry(batch_handle, WHOLE))
        else:
            level.fresh.append(batch_handle)
        self._list(level)

    def add_all_fresh(self, priority: int, handles: list[int]) -> None:
        level = self._of("", priority)
        level.fresh = deque(sorted([*level.fresh, *handles]))
        self._list(level)

    def add_returned(self, priority: int, entry: IdEntry) -> None:
        tenant, _ = self._describe(entry)
        level = self._of(tenant, priority)
        heapq.heappush(level.returned, entry)
        self._list(level)

    def put_back(self, priority: int, entry: IdEntry) -> None:
        tenant, messages = self._describe(entry)
        if self._taken is not None and self._taken.tenant == tenant:
            self._messages -= messages
        self.add_returned(priority, entry)

    def take(self) -> IdEntry | None:
        self._charge()
        for priority in sorted(self._buckets, reverse=True):
            buckets = self._buckets[priority]
            while (account := buckets.take()) is not None:
                level = account.owner
                assert level is not None
                if level.is_empty:  # its entries were removed otherwise
                    level.listed = False
                    continue
                entry = _first(level)
                self._taken = level
                self._messages = (
                    Handle.count(entry.handle) if entry.first == WHOLE else self._describe(entry)[1]
                )
                return entry
        self._tidy()
        return None

    def peek(self, limit: int) -> Iterator[IdEntry]:
        """The oldest entries of each priority, of all tenants."""
        for _, levels in groupby(self.levels, key=lambda each: each.priority):
            entries = chain.from_iterable(
                chain((IdEntry(each, WHOLE) for each in level.fresh), level.returned)
                for level in levels
            )
            yield from heapq.nsmallest(limit, entries)

    # --- tenants --------------------------------------------------------------------------

    def _of(self, tenant: str, priority: int) -> TenantLevel:
        found = self._by_name.get((tenant, priority))
        if found is None:
            found = self._by_name[tenant, priority] = TenantLevel(tenant, priority)
            insort(self.levels, found, key=lambda each: -each.priority)
            buckets = self._buckets.get(priority)
            if buckets is None:
                buckets = self._buckets[priority] = CreditBuckets(QUANTUM)
            found.account.generation = buckets.generation
        return found

    def _list(self, level: TenantLevel) -> None:
        if not level.listed and not level.is_empty:
            level.listed = True
            self._buckets[level.priority].put(level.account)

    def _charge(self) -> None:
        """Deducts the messages of the last take, and lists the tenant again."""
        level, self._taken = self._taken, None
        if level is None:
            return
        level.account.charge(self._messages)
        if level.is_empty:
            level.listed = False
        else:
            self._buckets[level.priority].put(level.account)

    def _tidy(self) -> None:
        """Forgets lists without messages, when there are many."""
        if len(self._by_name) < self._tidy_at:
            return
        idle = [each for each in self._by_name.values() if each.is_empty and not each.listed]
        for each in idle:
            del self._by_name[each.tenant, each.priority]
        self.levels = sorted(self._by_name.values(), key=lambda each: -each.priority)
        self._tidy_at = 2 * len(self._by_name) + IDLE_MAX


def _first(level: Level) -> IdEntry:
    """Removes and returns the oldest entry of a list that is not empty."""
    fresh, returned = level.fresh, level.returned
    if fresh and (not returned or fresh[0] < returned[0].handle):
        return IdEntry(fresh.popleft(), WHOLE)
    return heapq.heappop(returned)

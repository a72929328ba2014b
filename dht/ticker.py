"""The ticker of a core: everything that a node sends by itself, at two intervals.

| interval | work |
|---|---|
| `ping` | pings; deferred answers; entries for lazy learners; commit indexes; suspicion |
| `again` | resent requests; the budget for snapshots; the rebalancer; questions about old entries |

No rule of safety depends on either: an earlier or later tick only changes when a message is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .messages import Commits, EntriesAppended, Ping
from .role import Role

if TYPE_CHECKING:
    from .core import Core

#: Ticks (`again`) between two checks for entries on a follower without a known commit.
_ASK_TICKS: Final = 10
#: Snapshot bytes sent between two ticks (`again`), limited to leave room for regular traffic.
INSTALL_BYTES_PER_TICK: Final = 8 << 20


class Ticker:
    def __init__(self, core: Core) -> None:
        self._core = core
        #: The times of the next ping and the next resend; 0 makes both due in the first round.
        self.ping_at = 0
        self.again_at = 0
        self._ask_at = 0
        #: Answers that no node waits for, sent with the next ping: (node, partition) -> answer.
        #: A later answer replaces an earlier one, because it acknowledges all that the earlier did.
        self.later: dict[tuple[str, int], EntriesAppended] = {}
        #: Snapshot bytes that may still be sent before the next tick; the last piece may exceed it.
        self.install_budget = 0
        #: partition -> commit index at the last check, for partitions with uncommitted entries.
        self._uncommitted: dict[int, int] = {}

    def tick(self) -> bool:
        """Queues pings and resends messages when due; True if the resend tick was due."""
        core = self._core
        if core.now >= self.ping_at:
            self.ping_at = core.now + core.pace.ping
            self._ping()
        if core.now < self.again_at:
            return False
        self.again_at = core.now + core.pace.again
        self.install_budget = INSTALL_BYTES_PER_TICK
        if core.now >= self._ask_at:
            self._ask_at = core.now + _ASK_TICKS * core.pace.again
            self._ask_for_commits()
        self._resend()
        core.leadership_checks.resend()
        core.rebalancer.tend()
        return True

    def _ping(self) -> None:
        """Sends pings and all deferred messages together: one message on the wire, and one wake-up
        of the receiver, for all of them."""
        core = self._core
        ping = Ping(core.view.version, core.full)
        for node in core.view.members:
            if node != core.node:
                core.send(node, ping)
        later, self.later = self.later, {}
        for (node, _), answer in later.items():
            core.send(node, answer)
        for number in core.busy:
            core.replicas[number].log_sync.send_to_learners()
        self._send_commits()
        core.failure_detector.suspect()

    def _send_commits(self) -> None:
        """Sends commit indexes, one message per node, without an answer. The next entries repeat a
        lost commit index."""
        core = self._core
        due: dict[str, list[tuple[int, int, int]]] = {}
        for number in core.busy:
            replica = core.replicas[number]
            if replica.role is Role.ACTIVE:
                for follower in replica.followers:
                    if (lsn := replica.log_sync.due_commit(follower)) is not None:
                        due.setdefault(follower, []).append((number, replica.place.epoch, lsn))
        for node, commits in due.items():
            core.send(node, Commits(commits))

    def _resend(self) -> None:
        core = self._core
        for number in list(core.busy):
            replica = core.replicas[number]
            idle = replica.role is Role.IDLE and not replica.asks
            if idle or replica.leads_alone:
                core.busy.discard(number)
            else:
                replica.resend()
                core.note_commit(replica)

    def _ask_for_commits(self) -> None:
        """Asks primaries about entries that stay uncommitted for long: a follower behind a network
        cut may have missed the commit."""
        core = self._core
        waiting: dict[int, int] = {}
        for number, replica in core.replicas.items():
            if replica.role is Role.IDLE and replica.log.end > replica.committed:
                waiting[number] = replica.committed
                if self._uncommitted.get(number) == replica.committed:
                    replica.asks = True
                    core.busy.add(number)
        self._uncommitted = waiting

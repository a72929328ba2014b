"""Log synchronisation: a primary's flow of entries, commit indexes and snapshots to followers.

Per follower, ``Progress`` is the only memory. Rules:

- Nothing goes to a follower before the primary knows where the two logs agree (``Progress.next``).
- One snapshot transfer, or entries, but never both: entries wait until the transfer has ended.
- A member of the sync set always gets entries. Its log contains every applied entry, and the
  primary drops no entry that a member lacks. Only a learner may need a snapshot.
- A learner that no commit waits for is *lazy*: its entries gather until the next ping, and its
  answer comes with its own next ping. All other followers get entries at once.
- Timers only decide when to resend: every request may be repeated at any time.
"""

from __future__ import annotations

from collections.abc import Iterable

from . import replica_limits
from .log import agree
from .messages import AppendEntries, Installed, Need
from .progress import Progress
from .replica_state import ReplicaState
from .role import Role
from .snapshot_transfer import BEGIN_AGAIN, SnapshotTransfer


class LogSync:
    def __init__(self, state: ReplicaState) -> None:
        self._state = state
        #: The learner that joins the sync set next; "" for none. Never lazy, so that the learner
        #: becomes level as fast as possible.
        self.joining = ""
        #: Snapshot transfers started by this process. Grows across epochs, so that a follower never
        #: mistakes a piece of an older transfer for a piece of the present one.
        self._transfer_count = 0

    # --- which followers --------------------------------------------------------------------

    def change_learners(self, version: int) -> None:
        """Follows the learners of `place`, which changed within the epoch in view `version`. An
        ACTIVE primary announces its log to new learners."""
        state, known = self._state, self._state.progress
        state.progress = {n: known.get(n) or Progress(version) for n in state.followers}
        if state.role is Role.ACTIVE:
            self.announce(learner for learner in state.place.learners if learner not in known)

    def announce(self, learners: Iterable[str]) -> None:
        """Sends the end of the log to learners; each answers with what it has."""
        for learner in learners:
            self._state.progress[learner].next = self._state.log.end + 1
            self.ship(learner, even_empty=True)

    # --- entries ----------------------------------------------------------------------------

    def ship_new(self) -> None:
        """Sends a new entry to each follower that does not wait for a ping."""
        for follower in self._state.followers:
            if not self.is_lazy(follower) or self._has_lot(follower):
                self.ship(follower)

    def ship_more(self, name: str) -> None:
        """After an answer: sends the follower's next entries, if there are any."""
        follower = self._state.progress.get(name)
        if follower is None or (follower.next or 0) > self._state.log.end:
            return
        if self._has_lot(name) or not (follower.lazy and self.is_lazy(name)):
            self.ship(name)

    def ship(self, name: str, *, even_empty: bool = False, upto: int = 0) -> None:
        """Sends entries from ``Progress.next`` on, or starts a snapshot if they are dropped."""
        state, log, follower = self._state, self._state.log, self._state.progress[name]
        first = follower.next
        if first is None or follower.transfer is not None:
            return  # the follower's log is not known yet, or a snapshot is in flight
        if first <= log.base:
            self._send_state(name)
            return
        upto = upto or log.end
        entries = log.entries(first, min(replica_limits.ENTRIES_MAX, upto - first + 1))
        if entries or even_empty:
            before = (first - 1, log.epoch_at(first - 1))
            follower.next = first + len(entries)
            follower.commit_sent = state.committed, 0
            # A follower short of the end answers at once, because more entries follow.
            last = follower.next > upto and 0 < len(entries) < replica_limits.ENTRIES_MAX
            follower.lazy, follower.stalled_ticks = last and self.is_lazy(name), 0
            about = (state.committed, state.trim_point(), follower.since, follower.lazy)
            append = AppendEntries(state.number, state.place.epoch, before, entries, *about)
            state.host.send(name, append)

    def is_lazy(self, name: str) -> bool:
        """True for a learner that no commit waits for: entries gather until the next ping
        (`send_to_learners`). The catalogue is never lazy: every node waits for new queues."""
        state = self._state
        learns = name in state.place.learners and name not in state.pending
        return learns and name != self.joining and state.number != state.catalogue

    def _has_lot(self, name: str) -> bool:
        """True if the entries gathered for an idle learner fill a message."""
        follower = self._state.progress[name]
        return (
            not follower.under_way
            and self._state.log.end - follower.level >= replica_limits.ENTRIES_MAX
        )

    def send_to_learners(self) -> None:
        """Sends gathered entries along with a ping, if appended before the previous ping. By then
        most messages are consumed, and their payloads need not be copied."""
        state = self._state
        for learner in state.place.learners if state.role is Role.ACTIVE else ():
            follower = state.progress[learner]
            end_at_last_ping, follower.end_at_last_ping = follower.end_at_last_ping, state.log.end
            if not follower.under_way and end_at_last_ping > follower.level:
                self.ship(learner, upto=end_at_last_ping)

    def due_commit(self, name: str) -> int | None:
        """The commit index, if due to be sent to a level follower; else None."""
        state = self._state
        follower = state.progress.get(name) if state.role is Role.ACTIVE else None
        due = follower is not None and follower.needs_commit_index(state.committed)
        return state.committed if due else None

    def resend(self) -> None:
        for name in self._state.followers:
            self._resend_to(name)

    def _resend_to(self, name: str) -> None:
        """Resends to a follower only if the follower made no progress since the last call."""
        state, follower = self._state, self._state.progress[name]
        late, match = follower.is_late(state.log.end), follower.match
        if follower.transfer is not None:
            if state.host.reachable(name):
                self._send_piece(name)
            else:
                follower.transfer = None  # an open transfer keeps the log from being trimmed
        elif late and (follower.under_way or not self.is_lazy(name)):
            follower.next = state.log.end + 1 if match is None else match + 1
            self.ship(name, even_empty=True)

    # --- a follower with another log --------------------------------------------------------

    def need(self, name: str, follower: Progress, message: Need) -> None:
        """Continues after the last entry that both logs have, or sends the whole state."""
        log = self._state.log
        common = agree(log.lineage, log.end, message.lineage, message.end)
        if common is None or common < log.base:
            self._send_state(name)
            return
        follower.next = max(common, follower.level) + 1
        self.ship(name, even_empty=True)

    def installed(self, name: str, follower: Progress, message: Installed) -> bool:
        """Sends the next piece of a snapshot; True if the learner has the last piece."""
        transfer = follower.transfer
        if transfer is None or message.transfer != transfer.count:
            return False
        if message.number == BEGIN_AGAIN and transfer.number:
            follower.transfer = None
            self._send_state(name)
        elif message.number == transfer.number and not transfer.last:
            transfer.advance()
            self._send_piece(name)
        elif message.number == transfer.number:
            follower.has(message.lsn)
            self.ship(name, even_empty=True)
            return True
        return False

    def _send_state(self, name: str) -> None:
        """Starts a snapshot from the stored state: the entries applied up to the last write."""
        state, follower = self._state, self._state.progress[name]
        if follower.transfer is not None or name not in state.place.learners:
            return
        self._transfer_count += 1
        about = (state.overlay, state.number, state.catalogue, state.log)
        follower.transfer = SnapshotTransfer.begin(*about, self._transfer_count)
        self._send_piece(name)

    def _send_piece(self, name: str) -> None:
        state, follower = self._state, self._state.progress[name]
        transfer = follower.transfer
        if transfer is not None and state.host.may_install(transfer.size):  # else retry later
            piece = transfer.message(state.number, state.place.epoch, follower.since)
            state.host.send(name, piece)

"""The side of a replica that leads: takes over the log, appends and commits entries, grows the set.

Each method belongs to one role of ``role.TRANSITIONS``, and ignores a message for another role or
another epoch: an answer counts only in the epoch and the role that asked for it.

| role | waits for | next |
|---|---|---|
| SEALING | SEALED of every member of the sync set | chooses a log: COPYING or FETCHING |
| FETCHING | FETCHED of the member with the chosen log, until the logs are equal | COPYING |
| COPYING | APPENDED of every member, up to the end of the log | ACTIVE |
| ACTIVE | APPENDED of every needed node | the entry is committed |

A replica whose reign (``ReplicaState.reign``) goes on chooses its own log, which has every
committed entry. A longer log of a joining learner may have an entry that was never committed.
"""

from __future__ import annotations

from . import replica_limits
from .log import Changes, agree, encode, last_of
from .log_sync import LogSync
from .messages import (
    EntriesAppended,
    FencedReply,
    Fetch,
    Fetched,
    Installed,
    Lineage,
    Need,
    Seal,
    SealReply,
)
from .progress import Progress
from .replica_state import ReplicaState
from .role import Role, RoleEvent


class Primary:
    def __init__(self, state: ReplicaState, log_sync: LogSync) -> None:
        self._state = state
        self._log_sync = log_sync
        #: SEALING and later: member -> lineage and end of its log, as of its promise of the epoch.
        #: A member takes entries of this epoch only, from this primary only, so the extent stays
        #: valid until the primary sends entries.
        self._sealed: dict[str, tuple[Lineage, int]] = {}
        #: FETCHING: the member with the chosen log; always a key of `_sealed`.
        self._source = ""
        #: True if the epoch continues the replica's reign: its log has every committed entry.
        self._continues = False

    # --- taking over ------------------------------------------------------------------------

    def lead(self, *, continues: bool) -> None:
        """Begins an epoch that names this node primary."""
        state = self._state
        state.progress = {node: Progress() for node in state.followers}
        state.change_role(RoleEvent.NAMED_PRIMARY)
        self._continues = continues
        self._sealed = {state.node: (state.log.lineage, state.log.end)}
        self.resend()
        self._choose_log()

    def sealed(self, sender: str, message: SealReply) -> None:
        state = self._state
        if state.role is Role.SEALING and message.epoch == state.place.epoch:
            self._sealed.setdefault(sender, (message.lineage, message.end))
            self._choose_log()

    def _choose_log(self) -> None:
        """Once every member is sealed: keeps the own log, or fetches the most advanced one."""
        state = self._state
        if any(member not in self._sealed for member in state.place.sync):
            return
        if state.planted_bugs.cut_to_commit:
            state.log.cut(state.committed + 1)
        if self._continues or state.planted_bugs.cut_to_commit:
            self._source = state.node
        else:
            self._source = max(
                self._sealed, key=lambda node: (last_of(*self._sealed[node]), node == state.node)
            )
        if self._source == state.node:
            self._copy(RoleEvent.OWN_LOG_CHOSEN)
        else:
            state.change_role(RoleEvent.OTHER_LOG_CHOSEN)
            self._fetch_or_copy()

    def fetched(self, sender: str, message: Fetched) -> None:
        state = self._state
        if state.role is not Role.FETCHING or message.epoch != state.place.epoch:
            return
        if sender == self._source and state.log.has(*message.previous):
            state.ownership_generation += 1
            state.log.take(message.entries)
            self._fetch_or_copy()

    def _fetch_or_copy(self) -> None:
        state, (lineage, end) = self._state, self._sealed[self._source]
        common = self._common(lineage, end)
        if common == end and state.log.end == end:
            self._copy(RoleEvent.LOG_FETCHED)
        else:
            fetch = Fetch(state.number, state.place.epoch, common + 1)
            state.host.send(self._source, fetch)

    def _copy(self, event: RoleEvent) -> None:
        """Keeps this replica's log and brings every member level with the log."""
        state = self._state
        state.change_role(event)
        for member, (lineage, end) in self._sealed.items():
            if member != state.node:
                common = self._common(lineage, end)
                state.progress[member].next = max(common, state.log.base) + 1
                self._log_sync.ship(member, even_empty=True)
        self._advance("")

    def _common(self, lineage: Lineage, end: int) -> int:
        log = self._state.log
        common = agree(log.lineage, log.end, lineage, end)
        assert common is not None, "members of a sync set share what is applied"
        return common

    # --- entries ----------------------------------------------------------------------------

    def propose(self, changes: Changes, bodies: list[tuple[bytes, bytes | None]]) -> int:
        """Proposes an entry and returns its lsn; committed once `committed` reaches the lsn."""
        state = self._state
        assert state.serving
        if state.alone and state.applied == state.log.end:  # else an older entry is applied later
            for key, value in (*changes.puts, *bodies):
                if value is not None:
                    state.overlay.put_record(key, value)
            for key in changes.deletes:
                state.overlay.delete(key)
            return state.log.end
        lsn = state.log.append(state.place.epoch, encode(changes), bodies)
        self._log_sync.ship_new()
        self._commit()
        return lsn

    def appended(self, sender: str, message: EntriesAppended) -> None:
        follower = self._follower(sender, message.epoch)
        if follower is None or message.since != follower.since:
            return  # a learner that left and rejoined has discarded the acknowledged entries
        follower.has(message.lsn)
        self._advance(sender)

    def need(self, sender: str, message: Need) -> None:
        follower = self._follower(sender, message.epoch)
        if follower is not None:
            self._log_sync.need(sender, follower, message)

    def installed(self, sender: str, message: Installed) -> None:
        follower = self._follower(sender, message.epoch)
        if follower is not None and self._log_sync.installed(sender, follower, message):
            self._advance(sender)

    def _follower(self, sender: str, epoch: int) -> Progress | None:
        """The sender as a follower, if this replica leads in the message's epoch."""
        state = self._state
        leads = state.role in (Role.COPYING, Role.ACTIVE) and epoch == state.place.epoch
        return state.progress.get(sender) if leads else None

    def _advance(self, name: str) -> None:
        """After an answer of follower `name`: becomes ACTIVE, commits, sends more, as possible."""
        state = self._state
        if state.role is Role.COPYING:
            matches = [state.progress[member].match for member in state.place.sync[1:]]
            if all(match is not None and match >= state.log.end for match in matches):
                state.change_role(RoleEvent.MEMBERS_LEVEL)
                state.reign = state.place.epoch
                self._log_sync.announce(state.place.learners)
        if state.role is Role.ACTIVE:
            self._commit()
        self._log_sync.ship_more(name)

    def _commit(self) -> None:
        """Commits entries that all needed nodes have. The own write ends before answers go out."""
        state = self._state
        if len(state.place.sync) < state.min_sync:
            return
        levels = [each.level if each else 0 for each in map(state.progress.get, state.needed)]
        level = min(levels, default=state.log.end)
        level = state.log.end if state.planted_bugs.early_ack else level
        if level > state.committed:
            state.committed = level
            if state.number == state.catalogue:  # every node waits for new queues
                for follower in state.followers:
                    self._log_sync.ship(follower, even_empty=True)

    def resend(self) -> None:
        """Resends all unanswered requests of the present role: messages get lost."""
        state = self._state
        if state.role is Role.SEALING:
            for member in state.place.sync:
                if member not in self._sealed:
                    state.host.send(member, Seal(state.number, state.place.epoch))
        elif state.role is Role.FETCHING:
            self._fetch_or_copy()
        else:
            self._log_sync.resend()

    def fenced(self, sender: str, message: FencedReply) -> None:
        """A node has promised a newer epoch, so this replica is no longer the primary."""
        if message.epoch > self._state.place.epoch and self._state.role is not Role.IDLE:
            self._state.step_down()

    # --- growth of the sync set -------------------------------------------------------------

    def want_grow(self, learner: str) -> bool:
        """True if the learner may join the sync set now: the learner is pending and level."""
        state = self._state
        if state.role is not Role.ACTIVE:
            return False
        if state.planted_bugs.grow_unlevel:
            return True
        follower = state.progress.get(learner)
        match = follower.match if follower is not None else None
        if follower is None or match is None or not state.host.reachable(learner):
            return False
        if follower.lazy:
            # From now on the primary waits for the answer.
            self._log_sync.ship(learner, even_empty=True)
        if state.log.end - match <= replica_limits.ENTRIES_MAX:
            state.pending.add(learner)
        return match >= state.log.end

    def is_level(self, learner: str) -> bool:
        """True if the learner has answered in this epoch that it has the whole log."""
        follower = self._state.progress.get(learner)
        return follower is not None and follower.match == self._state.log.end

    def wait_only_for(self, learner: str) -> None:
        """Keeps only `learner` pending. No proposal is in flight, so no other node has joined."""
        state = self._state
        self._log_sync.joining = learner
        if state.pending - {learner}:
            state.pending &= {learner}
            self._commit()

    # --- reports ----------------------------------------------------------------------------

    def lag(self) -> dict[str, int]:
        """Entries that each follower is behind, except for entries that may be in flight."""
        end, known = self._state.log.end, self._state.progress.items()
        return {
            name: lag for name, each in known if (lag := each.lag(end, replica_limits.ENTRIES_MAX))
        }

    @property
    def transfer_count(self) -> int:
        """The number of snapshot transfers in progress."""
        return sum(each.transfer is not None for each in self._state.progress.values())

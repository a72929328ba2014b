"""The side of a replica that obeys a primary: promises, entries, commit indexes and snapshots.

A replica of any role obeys: a message with a newer epoch ends the replica's own lead. Every answer
follows from the present state, so a repeated or late message does no harm.

| copy | message | effect |
|---|---|---|
| whole | APPEND after a known entry | takes the entries, answers APPENDED |
| whole | APPEND after an unknown entry | answers NEED: the primary finds the common part |
| whole | INSTALL of a state that the log contains | answers APPENDED: no snapshot is needed |
| whole | INSTALL, piece 0 | wipes, becomes incomplete, takes the piece |
| incomplete | INSTALL, the next piece | takes the piece; whole again after the last one |
| incomplete | INSTALL, any other piece | answers BEGIN_AGAIN, or repeats the answer |
| incomplete | APPEND from the first entry on | wipes, becomes whole, takes the entries |
| incomplete | any other APPEND | answers NEED |

A message with an epoch below the promise changes nothing and is answered FENCED.
"""

from __future__ import annotations

from . import replica_limits
from .messages import (
    AppendEntries,
    EntriesAppended,
    FencedReply,
    Fetch,
    Fetched,
    Install,
    Installed,
    Need,
    Seal,
    SealReply,
)
from .replica_state import ReplicaState
from .snapshot_transfer import BEGIN_AGAIN


class Follower:
    def __init__(self, state: ReplicaState) -> None:
        self._state = state

    def _obeys(self, sender: str, epoch: int) -> bool:
        """Promises the epoch, or answers FENCED: the fence that every rule of safety rests on."""
        state = self._state
        if state.promise(epoch):
            return True
        state.host.send(sender, FencedReply(state.number, state.promised))
        return False

    def seal(self, sender: str, message: Seal) -> None:
        if self._obeys(sender, message.epoch):
            state = self._state
            lineage = list(state.log.lineage)
            reply = SealReply(state.number, message.epoch, lineage, state.log.end)
            state.host.send(sender, reply)

    def fetch(self, sender: str, message: Fetch) -> None:
        if not self._obeys(sender, message.epoch):
            return
        state, before = self._state, message.first - 1
        if state.log.base <= before <= state.log.end:
            previous = (before, state.log.epoch_at(before))
            entries = state.log.entries(message.first, replica_limits.ENTRIES_MAX)
            state.host.send(sender, Fetched(state.number, message.epoch, previous, entries))

    def append(self, sender: str, message: AppendEntries) -> None:
        if not self._obeys(sender, message.epoch):
            return
        state, log = self._state, self._state.log
        lsn, epoch = message.previous
        if state.installing and lsn == 0:
            state.wipe()  # the primary has the log from the start: discard the partial state
        # Entries below the base are applied, so every primary since has these entries.
        known = lsn < log.base or log.has(lsn, epoch)
        if state.installing or not known:
            self._need(sender, message.epoch)
            return
        state.ownership_generation += 1
        state.asks = False
        log.take(message.entries)
        level = lsn + len(message.entries)
        if state.level[0] != message.epoch or level > state.level[1]:
            state.level = message.epoch, level
        self.receive_commit_index(message.epoch, message.committed)
        state.trim(message.trim)
        send = state.host.send_later if message.lazy else state.host.send
        send(sender, EntriesAppended(state.number, message.epoch, level, message.since))

    def receive_commit_index(self, epoch: int, lsn: int) -> None:
        """Takes the primary's commit index, as far as the two logs are known to be equal."""
        state = self._state
        if state.level[0] == epoch:
            state.committed = max(state.committed, min(lsn, state.level[1]))

    def resend(self) -> None:
        """Asks the primary again about entries that may be committed."""
        place = self._state.place
        if self._state.asks and place.primary != self._state.node:
            self._need(place.primary, place.epoch)

    def _need(self, primary: str, epoch: int) -> None:
        state, log = self._state, self._state.log
        state.host.send(primary, Need(state.number, epoch, list(log.lineage), log.end))

    def install(self, sender: str, message: Install) -> None:
        if not self._obeys(sender, message.epoch):
            return
        state = self._state
        lsn, epoch = message.at
        if not state.installing and (state.log.base > lsn or state.log.has(lsn, epoch)):
            answer = EntriesAppended(state.number, message.epoch, lsn, message.since)
            state.host.send(sender, answer)
            return
        transfer = (message.epoch, message.transfer)
        if transfer < state.next_piece[0]:
            return  # a piece of an abandoned transfer
        if message.number == 0 and not (state.installing and state.next_piece[0] == transfer):
            self._begin_install(transfer)
        number = message.number
        if state.next_piece[0] != transfer or number > state.next_piece[1]:
            # The piece is of another transfer, or a restart has lost the earlier pieces.
            number = BEGIN_AGAIN
        elif number == state.next_piece[1]:
            self._take_piece(transfer, message)
        done = Installed(state.number, message.epoch, lsn, number, message.transfer)
        state.host.send(sender, done)

    def _begin_install(self, transfer: tuple[int, int]) -> None:
        state = self._state
        state.wipe()
        state.installing = True
        state.save()
        state.next_piece = (transfer, 0)

    def _take_piece(self, transfer: tuple[int, int], message: Install) -> None:
        state = self._state
        state.next_piece = (transfer, message.number + 1)
        for key, value in message.rows:
            state.overlay.put_record(key, value)
        if message.last or state.planted_bugs.install_whole_early:
            lsn, epoch = message.at
            state.installing = False
            state.log.restart(lsn, epoch)
            state.applied = state.committed = lsn
            state.save()
            state.host.replaced(state.number)

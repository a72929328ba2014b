"""A primary's record of one follower, within one epoch.

The record starts empty in every epoch, and a newer epoch discards it. It only holds what the
follower's answers of this epoch prove; no field is persistent.
"""

from __future__ import annotations

from typing import Final

from .snapshot_transfer import SnapshotTransfer

#: Checks without progress before a lazy append is resent: the answer comes with a ping.
_LATE_POLLS: Final = 6
#: How often the primary sends a commit index to a follower that gets no further entries.
_TELL_TIMES: Final = 3


class Progress:
    __slots__ = (
        "commit_sent",
        "end_at_last_ping",
        "lazy",
        "match",
        "next",
        "since",
        "stalled_ticks",
        "stuck",
        "transfer",
    )

    def __init__(self, since: int = 0) -> None:
        #: The version of the view that made the node a learner; 0 if the node follows since the
        #: epoch began. Constant. A node that ceases to be a learner discards its data, and may
        #: become a learner again in the same epoch, with a new `Progress`: so requests and answers
        #: carry this number, and an answer with another number does not count.
        self.since = since
        #: The follower's log durably equals the primary's up to here; None if not known yet. Never
        #: decreases: a follower that acknowledged an entry keeps the entry throughout the epoch.
        #: Commits count only this field.
        self.match: int | None = None
        #: The first lsn not sent yet; None until the primary has chosen where to begin. Always
        #: above `match`. The entries between the two are in flight: sent, not acknowledged, and
        #: maybe lost, so a resend sets `next` back to ``match + 1``.
        self.next: int | None = None
        #: The commit index last sent to the follower, and how often without entries since. Only
        #: saves messages: the follower may not have received any of them.
        self.commit_sent = (-1, 0)
        #: `match` at the last check (-1 for None; -2 before the first check), and how many checks
        #: in a row found a follower with missing entries unchanged.
        self.stuck = -2
        self.stalled_ticks = 0
        #: The log's end at the last ping: later entries do not go to a lazy learner yet.
        self.end_at_last_ping = 0
        #: True if the answer to the append in flight comes with the follower's next ping, so that
        #: its absence is no reason for an early resend. Only ever True for a learner.
        self.lazy = False
        #: The snapshot transfer in progress, if any. While set, no entries go to the follower, and
        #: the primary keeps all entries after the snapshot's lsn.
        self.transfer: SnapshotTransfer | None = None

    @property
    def level(self) -> int:
        """The last lsn that the follower is known to have; 0 if not known."""
        return self.match or 0

    def has(self, lsn: int) -> None:
        """Records that the follower's log equals the primary's up to `lsn`."""
        self.transfer = None
        self.match = max(self.level, lsn)
        if self.next is None or self.next <= self.match:
            self.next = self.match + 1

    def needs_commit_index(self, committed: int) -> bool:
        """True if the follower has the committed entries and is due for the commit index; counts
        the call as a send. Sent several times, because there is no answer and a send may be lost.
        """
        commit_sent, times = self.commit_sent
        if self.match is None or self.match < committed:
            return False  # the entries carry the commit index
        if commit_sent >= committed and times >= _TELL_TIMES:
            return False
        self.commit_sent = committed, times + 1 if commit_sent == committed else 1
        return True

    def is_late(self, end: int) -> bool:
        """True if the follower made no progress since the last check, and should have."""
        before, self.stuck = self.stuck, -1 if self.match is None else self.match
        if self.match is None:
            return True
        if self.match >= end or self.match != before:
            self.stalled_ticks = 0
            return False
        self.stalled_ticks += 1
        return not self.lazy or self.stalled_ticks >= _LATE_POLLS

    @property
    def under_way(self) -> bool:
        """True if a message to the follower is unanswered."""
        return self.match is None or self.next is None or self.next > self.match + 1

    def lag(self, end: int, under_way: int) -> int:
        """Entries that the follower is behind `end`; 0 if at most `under_way`, the entries that may
        be in flight."""
        lag = end - self.level
        return lag if self.match is None or lag > under_way else 0

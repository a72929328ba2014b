"""What a primary knows of one node that follows it, within one epoch."""

from __future__ import annotations

from typing import Final

from .sending import Sending

#: What was sent lazily is answered with a ping: so many looks in vain before it is sent again.
_LATE_LOOKS: Final = 6
#: How often a commit is told to a follower that gets no entries after it.
_TELL_TIMES: Final = 3


class Follower:
    __slots__ = ("lazy", "match", "next", "ripe", "sending", "since", "still", "stuck", "told")

    def __init__(self, since: int = 0) -> None:
        #: The version of the view in which it became a learner; 0 if it follows since the epoch
        #: began. Whoever ceases to be a learner forgets all he has, and may be one again in the
        #: same epoch: so what it says is asked for and said with this number.
        self.since = since
        #: Its log equals ours up to this lsn; None: it has not said yet what it holds.
        self.match: int | None = None
        #: The first lsn that was not sent to it yet.
        self.next: int | None = None
        #: The commit that it was told, and how often.
        self.told = (-1, 0)
        #: Its match when something was last said again, and how often it was the same.
        self.stuck = -2
        self.still = 0
        #: The log's end at the last ping: what came later does not go to a learner yet.
        self.ripe = 0
        #: What is under way to it, if anything, is answered when there is a ping anyway.
        self.lazy = False
        #: The state on its way to it, if it needs all of it.
        self.sending: Sending | None = None

    @property
    def level(self) -> int:
        """As far as it is known to have the log."""
        return self.match or 0

    def has(self, lsn: int) -> None:
        """It has said that its log equals ours up to there."""
        self.sending = None
        self.match = max(self.level, lsn)
        if self.next is None or self.next <= self.match:
            self.next = self.match + 1

    def is_to_hear(self, committed: int) -> bool:
        """Whether it is level and is to be told of a commit, which is noted: some times, because
        that is not answered, and may be lost."""
        told, times = self.told
        if self.match is None or self.match < committed:
            return False  # it hears of it with the entries
        if told >= committed and times >= _TELL_TIMES:
            return False
        self.told = committed, times + 1 if told == committed else 1
        return True

    def is_late(self, end: int) -> bool:
        """Whether it got no further since this was last asked, and should have."""
        before, self.stuck = self.stuck, -1 if self.match is None else self.match
        if self.match is None:
            return True
        if self.match >= end or self.match != before:
            self.still = 0
            return False
        self.still += 1
        return not self.lazy or self.still >= _LATE_LOOKS

    @property
    def under_way(self) -> bool:
        """Whether something was sent to it that it has not answered."""
        return self.match is None or self.next is None or self.next > self.match + 1

    def lag(self, end: int, under_way: int) -> int:
        """How far it is behind the log's end; so many entries may just be under way to it."""
        lag = end - self.level
        return lag if self.match is None or lag > under_way else 0

"""What a primary knows of one node that follows it, within one epoch."""

from __future__ import annotations

from .sending import Sending


class Follower:
    __slots__ = ("match", "next", "sending", "since", "stuck", "told")

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
        #: Its match when something was last said again.
        self.stuck = -2
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

    def lag(self, end: int, under_way: int) -> int:
        """How far it is behind the log's end; so many entries may just be under way to it."""
        lag = end - self.level
        return lag if self.match is None or lag > under_way else 0

"""The register: one value (the view) that a majority of voters agrees on. CASPaxos.

Two exchanges change it. PREPARE asks the voters to promise a ballot and to say what they accepted;
with a quorum of promises the newest accepted view is *the* view. The change is a function applied
to it, and ACCEPT asks the voters to take the result. There is no log and no leader: whoever wants
a change runs both exchanges itself, and whoever meets a higher ballot starts again with one.

A voter persists what it promised and accepted before it answers: answers are only sent after the
round's write. A view names its own voters. A proposer asks those of the newest view it knows; if
what it reads names others, it starts again with those. Between two groups of voters there is a
joint view that needs a majority of both, so any two quorums of neighbouring views intersect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from .messages import Accept, Accepted, AnyMessage, Ballot, Prepare, Promise, Reject
from .view import NOTHING, Change, View

ZERO: Final[Ballot] = (0, 0, "")
#: Changes that wait for their turn on one node.
WISHES_MAX: Final = 1024


class Vote(msgspec.Struct, array_like=True, frozen=True):
    """What a voter persists."""

    promised: Ballot = ZERO
    accepted: Ballot = ZERO
    view: View = NOTHING


class Voter:
    """The accepting half."""

    def __init__(self, vote: Vote, save: Callable[[Vote], None]) -> None:
        self.vote = vote
        self._save = save

    def prepare(self, message: Prepare) -> AnyMessage:
        vote = self.vote
        if message.ballot < vote.promised:
            return Reject(message.ballot, vote.promised)
        if message.ballot > vote.promised:
            self._set(Vote(message.ballot, vote.accepted, vote.view))
        return Promise(message.ballot, vote.accepted, vote.view)

    def accept(self, message: Accept) -> AnyMessage:
        vote = self.vote
        if message.ballot < vote.promised:
            return Reject(message.ballot, vote.promised)
        if message.ballot != vote.accepted:
            self._set(Vote(message.ballot, message.ballot, message.view))
        return Accepted(message.ballot)

    def _set(self, vote: Vote) -> None:
        assert vote.promised >= self.vote.promised, "a promise never decreases"
        self.vote = vote
        self._save(vote)


class Proposer:
    """The changing half: one change at a time, tried until it is decided or has lost its reason."""

    def __init__(self, node: str, boot: int) -> None:
        self._node = node
        self._boot = boot
        self._counter = 0
        self._wishes: deque[Change] = deque()
        self._ballot: Ballot | None = None
        self._asked: View = NOTHING  # whose voters were asked
        self._promises: dict[str, tuple[Ballot, View]] = {}
        self._proposed: View | None = None
        self._accepted: set[str] = set()
        self.sends: list[tuple[str, AnyMessage]] = []
        #: Views that were chosen, for the node to learn.
        self.chosen: list[View] = []
        #: Set when a try was lost to a higher ballot: the node waits a random while.
        self.lost = False

    @property
    def idle(self) -> bool:
        return not self._wishes

    @property
    def trying(self) -> bool:
        return self._ballot is not None

    def wish(self, change: Change) -> None:
        if len(self._wishes) < WISHES_MAX:
            self._wishes.append(change)

    def start(self, known: View) -> None:
        """A new try, with a ballot above all that were seen."""
        assert self._wishes
        self._counter += 1
        self._ballot = (self._counter, self._boot, self._node)
        self._asked, self._promises, self._proposed = known, {}, None
        self._accepted = set()
        self._send(known, Prepare(self._ballot))

    def promise(self, sender: str, message: Promise) -> None:
        if message.ballot != self._ballot or self._proposed is not None:
            return
        self._promises[sender] = (message.accepted, message.view)
        if not self._asked.quorum(self._promises):
            return
        _, read = max(self._promises.values(), key=lambda said: said[0])
        assert read.version >= self._asked.version, "a chosen view is read by every quorum"
        if (read.voters, read.joining) != (self._asked.voters, self._asked.joining):
            self.start(read)
            return
        wanted = self._wishes[0](read)
        # What was read is written again even if nothing changes: it may not have been chosen yet.
        if wanted is not read:
            wanted = msgspec.structs.replace(wanted, version=read.version + 1)
        self._proposed, self._asked = wanted, read
        self._send(wanted, Accept(self._ballot, wanted))
        self._send_rest(read, wanted)

    def accepted(self, sender: str, message: Accepted) -> None:
        if message.ballot != self._ballot or self._proposed is None:
            return
        self._accepted.add(sender)
        if self._proposed.quorum(self._accepted) and self._asked.quorum(self._accepted):
            self._wishes.popleft()
            self._ballot = None
            self.chosen.append(self._proposed)

    def reject(self, message: Reject) -> None:
        self._counter = max(self._counter, message.promised[0])
        if message.ballot == self._ballot:
            self._ballot = None
            self.lost = True

    def _send(self, view: View, message: AnyMessage) -> None:
        self.sends.extend((node, message) for node in view.deciders)

    def _send_rest(self, old: View, new: View) -> None:
        """Voters on their way out must agree as well."""
        assert self._ballot is not None
        rest = [node for node in old.deciders if node not in new.deciders]
        self.sends.extend((node, Accept(self._ballot, new)) for node in rest)

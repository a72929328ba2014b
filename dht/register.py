"""The register: one value (the view) that a majority of voters agrees on. CASPaxos.

Two exchanges change it. PREPARE asks the voters to promise a ballot and to say what they accepted;
with a quorum of promises the newest accepted view is *the* view. The change is a function applied
to it, and ACCEPT asks the voters to take the result. There is no log and no leader: whoever wants
a change runs both exchanges itself, and whoever meets a higher ballot starts again with one.

A voter persists what it promised and accepted before it answers: answers are only sent after the
round's write. A view names its own voters. A proposer asks those of the newest view it knows, which
was chosen; if what it reads names others, it asks those *as well*, with the same ballot. What was
read may not be chosen yet, so the voters of the known view must take the result too: alone, those
of a view that was only tried could decide behind the others' backs. Between two groups of voters
there is a joint view that needs a majority of both, so quorums of neighbouring views intersect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
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
    """The changing half: all wishes of a node in one go, tried until they are decided.

    A wish that has lost its reason changes nothing.
    """

    def __init__(self, node: str, boot: int, counter: int = 0) -> None:
        self._node = node
        self._boot = boot
        self._counter = counter
        self._wishes: deque[Change] = deque()
        self._ballot: Ballot | None = None
        self._asked: list[View] = []  # whose voters were asked: the known view, then those read
        self._promises: dict[str, tuple[Ballot, View]] = {}
        self._tried: list[Change] = []
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

    def forget(self) -> None:
        """Nothing is wished for any more: this node is no member."""
        self._wishes.clear()
        self._tried.clear()
        self._ballot = None

    def start(self, known: View) -> None:
        """A new try, with a ballot above all that were seen."""
        assert self._wishes
        self._counter += 1
        self._ballot = (self._counter, self._boot, self._node)
        self._asked, self._promises, self._proposed = [known], {}, None
        self._tried = list(self._wishes)
        self._accepted = set()
        self._send([known], Prepare(self._ballot))

    def promise(self, sender: str, message: Promise) -> None:
        if message.ballot != self._ballot or self._proposed is not None:
            return
        self._promises[sender] = (message.accepted, message.view)
        while True:
            if not all(view.quorum(self._promises) for view in self._asked):
                return
            _, read = max(self._promises.values(), key=lambda said: said[0])
            assert read.version >= self._asked[0].version, "a chosen view is read by every quorum"
            if any(read.groups == view.groups for view in self._asked):
                break
            self._ask_also(read)
        wanted = read
        for number, wish in enumerate(self._tried, 1):
            wanted = wish(wanted)
            if wanted.groups != read.groups:
                # Each step between two groups of voters is decided by itself.
                del self._tried[number:]
                break
        # What was read is written again even if nothing changes: it may not have been chosen yet.
        if wanted is not read:
            wanted = msgspec.structs.replace(wanted, version=read.version + 1)
        self._proposed = wanted
        self._send((*self._asked, wanted), Accept(self._ballot, wanted))

    def accepted(self, sender: str, message: Accepted) -> None:
        if message.ballot != self._ballot or self._proposed is None:
            return
        self._accepted.add(sender)
        if all(view.quorum(self._accepted) for view in (*self._asked, self._proposed)):
            for _ in self._tried:
                self._wishes.popleft()
            self._ballot = None
            self.chosen.append(self._proposed)

    def reject(self, message: Reject) -> None:
        self._counter = max(self._counter, message.promised[0])
        if message.ballot == self._ballot:
            self._ballot = None
            self.lost = True

    def _ask_also(self, read: View) -> None:
        """Those who may decide by now: what they have accepted may be newer still."""
        assert self._ballot is not None
        before = {node for view in self._asked for node in view.deciders}
        self._asked.append(read)
        message = Prepare(self._ballot)
        self.sends.extend((node, message) for node in read.deciders if node not in before)

    def _send(self, views: Iterable[View], message: AnyMessage) -> None:
        nodes = dict.fromkeys(node for view in views for node in view.deciders)
        self.sends.extend((node, message) for node in nodes)

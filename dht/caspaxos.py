"""The register: one value (the view) that a majority of voters agrees on. CASPaxos.

Two exchanges change the value. PREPARE asks the voters to promise a ballot and to return the
accepted view; with a quorum of promises, the newest accepted view is *the* view. The proposer
applies a change, which is a function of the view, and ACCEPT asks the voters to take the result.
There is no log and no leader: each node runs both exchanges for its own changes, and a proposer
that meets a higher ballot starts again with a still higher ballot.

A voter persists its promise and its accepted view before answering: answers leave only after the
round's write. A view names its own voters. A proposer asks the voters of the newest known view,
which was chosen; if the view read names other voters, the proposer asks those *as well*, with the
same ballot. The view read may not be chosen yet, so the voters of the known view must accept the
result too: otherwise the voters of a merely attempted view could decide without the others. Between
two groups of voters there is a joint view that needs a majority of both groups, so quorums of
neighbouring views intersect.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from .messages import Accept, Accepted, AnyMessage, Ballot, Prepare, Promise, ProposalRejected
from .view import NOTHING, Change, View

ZERO: Final[Ballot] = (0, 0, "")
#: Changes that one node may have queued.
PROPOSED_CHANGES_MAX: Final = 1024


class Vote(msgspec.Struct, array_like=True, frozen=True):
    """The persistent state of a voter."""

    promised: Ballot = ZERO
    accepted: Ballot = ZERO
    view: View = NOTHING


class Voter:
    """The acceptor: promises ballots and accepts views."""

    def __init__(self, vote: Vote, save: Callable[[Vote], None]) -> None:
        self.vote = vote
        self._save = save

    def prepare(self, message: Prepare) -> AnyMessage:
        vote = self.vote
        if message.ballot < vote.promised:
            return ProposalRejected(message.ballot, vote.promised)
        if message.ballot > vote.promised:
            self._set(Vote(message.ballot, vote.accepted, vote.view))
        return Promise(message.ballot, vote.accepted, vote.view)

    def accept(self, message: Accept) -> AnyMessage:
        vote = self.vote
        if message.ballot < vote.promised:
            return ProposalRejected(message.ballot, vote.promised)
        if message.ballot != vote.accepted:
            self._set(Vote(message.ballot, message.ballot, message.view))
        return Accepted(message.ballot)

    def _set(self, vote: Vote) -> None:
        assert vote.promised >= self.vote.promised, "a promise never decreases"
        self.vote = vote
        self._save(vote)


class Proposer:
    """The proposer: runs all queued changes of a node in one attempt, and retries until decided.

    A change does nothing if its reason no longer holds.
    """

    def __init__(self, node: str, boot: int, counter: int = 0) -> None:
        self._node = node
        self._boot = boot
        self._counter = counter
        self._proposed_changes: deque[Change] = deque()
        self._ballot: Ballot | None = None
        self._asked: list[View] = []  # views to ask the voters of: the known, then those read
        self._promises: dict[str, tuple[Ballot, View]] = {}
        self._tried: list[Change] = []
        self._proposed: View | None = None
        self._accepted: set[str] = set()
        self.sends: list[tuple[str, AnyMessage]] = []
        #: Chosen views, for the node to learn.
        self.chosen: list[View] = []
        #: Set when an attempt lost to a higher ballot: the node backs off for a random time.
        self.lost = False

    @property
    def idle(self) -> bool:
        return not self._proposed_changes

    @property
    def trying(self) -> bool:
        return self._ballot is not None

    def propose_change(self, change: Change) -> None:
        if len(self._proposed_changes) < PROPOSED_CHANGES_MAX:
            self._proposed_changes.append(change)

    def forget(self) -> None:
        """Drops all queued changes: the node is no longer a member."""
        self._proposed_changes.clear()
        self._tried.clear()
        self._ballot = None

    def start(self, known: View) -> None:
        """Starts a new attempt, with a ballot above all ballots seen."""
        assert self._proposed_changes
        self._counter += 1
        self._ballot = (self._counter, self._boot, self._node)
        self._asked, self._promises, self._proposed = [known], {}, None
        self._tried = list(self._proposed_changes)
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
        for number, change in enumerate(self._tried, 1):
            wanted = change(wanted)
            if wanted.groups != read.groups:
                # A change of the voters ends the batch: each such step is decided separately.
                del self._tried[number:]
                break
        # Write the view read even if nothing changes: the view may not have been chosen yet.
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
                self._proposed_changes.popleft()
            self._ballot = None
            self.chosen.append(self._proposed)

    def reject(self, message: ProposalRejected) -> None:
        self._counter = max(self._counter, message.promised[0])
        if message.ballot == self._ballot:
            self._ballot = None
            self.lost = True

    def _ask_also(self, read: View) -> None:
        """Asks also the voters of the view read, which may hold a still newer accepted view."""
        assert self._ballot is not None
        before = {node for view in self._asked for node in view.deciders}
        self._asked.append(read)
        message = Prepare(self._ballot)
        self.sends.extend((node, message) for node in read.deciders if node not in before)

    def _send(self, views: Iterable[View], message: AnyMessage) -> None:
        nodes = dict.fromkeys(node for view in views for node in view.deciders)
        self.sends.extend((node, message) for node in nodes)

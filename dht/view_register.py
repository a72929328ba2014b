"""This node's part in the register that holds the view: its vote, and its proposals of views.

``caspaxos`` has the protocol. This module gives the protocol a disk, a clock and randomness: the
vote is stored before any answer leaves, a ballot is never used twice, and two proposers that
compete back off for a random time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from weft.persistence import layout
from weft.persistence.overlay import Overlay

from . import data_loss_recovery
from .caspaxos import Proposer, Vote, Voter
from .messages import Announce
from .view import View

if TYPE_CHECKING:
    from .core import Core

_encode = msgspec.msgpack.Encoder().encode
_decode_vote = msgspec.msgpack.Decoder(Vote).decode
_VOTE = layout.node("vote")


class ViewRegister:
    def __init__(self, core: Core, overlay: Overlay) -> None:
        self._core = core
        self._overlay = overlay
        #: The node's vote. Persistent: a voter that forgets a promise lets two views be chosen.
        self.voter = Voter(Vote(), self._save_vote)
        #: The node's queued changes of the view, and the attempt in progress.
        self.proposer = Proposer(core.node, 0)
        #: The next attempt does not start before this time: the last one lost to a higher ballot.
        self._try_at = 0
        #: The attempt in progress is given up, and started again, at this time.
        self._try_until = 0

    def found(self, first: View) -> None:
        """Stores the first view of a cluster as chosen."""
        node = self._core.node
        self._save_vote(Vote((0, 0, node), (0, 0, node), first))

    def recover(self, boot: int) -> None:
        """Loads the vote; `boot` is the number of this start, and part of every ballot."""
        core, vote = self._core, self._overlay.read(_VOTE)
        self.voter = Voter(_decode_vote(vote) if vote is not None else Vote(), self._save_vote)
        if core.planted_bugs.reused_ballot:
            self.proposer = Proposer(core.node, 0)
        else:
            # Start above this node's own promise, or the node's voter refuses the first ballot.
            self.proposer = Proposer(core.node, boot, self.voter.vote.promised[0])

    def force(self, view: View) -> None:
        """Makes a view chosen by this node alone (``data_loss_recovery.forced``)."""
        core = self._core
        assert view.voters == (core.node,)
        counter = self.voter.vote.promised[0] + data_loss_recovery.COUNTER_JUMP
        ballot = (counter, core.boot, core.node)
        self.voter = Voter(Vote(ballot, ballot, view), self._save_vote)
        self._save_vote(self.voter.vote)
        self.proposer = Proposer(core.node, core.boot, counter)
        self._publish(view)

    def drive(self) -> None:
        """Sends the proposer's messages, publishes chosen views, and starts attempts when due."""
        core, proposer = self._core, self.proposer
        self._send()
        for view in proposer.chosen:
            self._publish(view)
        proposer.chosen.clear()
        if proposer.lost:
            proposer.lost = False
            self._try_at = core.now + core.entropy(2 * core.pace.backoff)
        if proposer.idle or not core.view.members or core.now < self._try_at:
            return
        if not proposer.trying or core.now >= self._try_until:
            self._try_until = core.now + core.pace.suspect + core.entropy(core.pace.backoff)
            proposer.start(core.view)
            self._send()

    @property
    def due_at(self) -> int:
        """The time of the next attempt; only for a proposer that is not idle."""
        return self._try_until if self.proposer.trying else self._try_at

    def _send(self) -> None:
        for to, message in self.proposer.sends:
            self._core.send(to, message)
        self.proposer.sends.clear()

    def _publish(self, view: View) -> None:
        core = self._core
        core.learn(view)
        for node in view.members:
            if node != core.node:
                core.send(node, Announce(view))

    def _save_vote(self, vote: Vote) -> None:
        if self._core.planted_bugs.forgetful_voter and vote.promised[0]:
            return
        self._overlay.put(_VOTE, _encode(vote))

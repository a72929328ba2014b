"""Leadership checks: before answering from a read, a primary confirms that it still leads.

A change is safe by itself: every member of the sync set acknowledges the change, and a member with
a newer promised epoch refuses. An answer without a change (the messages that a pop lends) may be
wrong: behind a network cut, or after a pause, a former primary still believes in its lead while
another node has lent and acked the same messages. So before such an answer leaves, every other
member of the sync set, and every *pending* node, confirms that no newer epoch was promised. A
confirmation needs no write.

Why a confirmation is enough: only an active primary brings a node into its set. So the next active
node is in this primary's set, or is the pending learner: the learner may have joined, and the other
members may have left the set again, without this primary having learned of either. The next active
node promises itself the newer epoch before becoming active. If all of these nodes deny a newer
promise *after* the messages were taken, then at that moment no other node had acknowledged
anything.

A question has a *ticket*, a number that grows with each round; the answer to a later ticket covers
all earlier ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .messages import Confirm, Confirmed, FencedReply

if TYPE_CHECKING:
    from .core import Core


class LeadershipChecks:
    def __init__(self, core: Core) -> None:
        self._core = core
        #: partition -> the last ticket given out.
        self._tickets: dict[int, int] = {}
        #: partition -> the epoch of the answers, and the last ticket that each member answered.
        self._answers: dict[int, tuple[int, dict[str, int]]] = {}
        self._new: set[int] = set()  # asked in this round, and not sent yet
        self._open: set[int] = set()  # not confirmed yet

    # --- the primary ----------------------------------------------------------------------

    def ask(self, number: int) -> int:
        if number not in self._new:
            self._new.add(number)
            self._open.add(number)
            self._tickets[number] = self._tickets.get(number, 0) + 1
        return self._tickets[number]

    def level(self, number: int) -> int:
        """The last ticket that all needed nodes have answered."""
        replica = self._core.replicas[number]
        if not replica.serving:
            return 0
        others = replica.needed
        epoch, answers = self._answers.get(number, (0, {}))
        if others and epoch != replica.place.epoch:
            return 0
        last = self._tickets.get(number, 0)
        level = min((answers.get(node, 0) for node in others), default=last)
        if level == last:
            self._open.discard(number)
        return level

    def send(self) -> None:
        """Sends the questions of the round, one message for each node."""
        if self._new:
            new, self._new = self._new, set()
            self._send(new)

    def resend(self) -> None:
        """Resends open questions: messages get lost, and epochs change."""
        if self._open:
            self._send({number for number in self._open if number not in self._new})

    def answered(self, sender: str, message: Confirmed) -> None:
        for number, epoch, ticket in message.answers:
            replica = self._core.replicas.get(number)
            if replica is None or epoch != replica.place.epoch:
                continue
            known, answers = self._answers.get(number, (0, {}))
            if known != epoch:
                answers = {}
                self._answers[number] = epoch, answers
            answers[sender] = max(answers.get(sender, 0), ticket)

    # --- the follower ---------------------------------------------------------------------

    def asked(self, sender: str, message: Confirm) -> None:
        granted = []
        for question in message.questions:
            replica = self._core.replicas.get(question[0])
            if replica is None:
                continue
            if question[1] < replica.promised:
                self._core.send(sender, FencedReply(question[0], replica.promised))
            else:
                granted.append(question)
        if granted:
            self._core.send(sender, Confirmed(granted))

    # --- inside ---------------------------------------------------------------------------

    def _send(self, numbers: set[int]) -> None:
        by_node: dict[str, list[tuple[int, int, int]]] = {}
        for number in sorted(numbers):
            replica = self._core.replicas[number]
            if replica.place.primary != self._core.node:
                self._open.discard(number)  # waiting callers were told
                continue
            question = number, replica.place.epoch, self._tickets[number]
            for node in replica.needed:
                by_node.setdefault(node, []).append(question)
        for node, questions in by_node.items():
            self._core.send(node, Confirm(questions))

"""Confirmations: a primary that only read something asks whether it may say so.

A change is safe by itself: it is acknowledged by every member of the sync set, and whoever has
promised a newer epoch refuses. What a primary answers without a change (the messages that a pop
lends) it may know wrongly: behind a cut, or after a pause, it goes on believing that it leads while
another node has lent and acked the same messages. So before such an answer leaves, every other
member of the sync set, and everyone who is *pending*, says that it has promised nobody else. That
needs no write.

Why it is enough: only an active primary brings somebody into its set, so the next node that is
active after this one is in its set, or is the one that it was about to take in: it may have been,
and the others may have left the set again, without this node having heard of either. Whoever that
is promises itself the newer epoch before it is active. If all of them deny that *after* the
messages were taken, then at that moment nobody else had acknowledged anything.

A question has a *ticket*, a number that grows with each round; a later one answers for all before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .messages import Confirm, Confirmed, Fenced

if TYPE_CHECKING:
    from .core import Core


class Confirmations:
    def __init__(self, core: Core) -> None:
        self._core = core
        #: partition -> the last ticket that was asked for.
        self._tickets: dict[int, int] = {}
        #: partition -> the epoch of the answers, and the ticket that each member has answered.
        self._answers: dict[int, tuple[int, dict[str, int]]] = {}
        self._new: set[int] = set()  # asked in this round, and not sent yet
        self._open: set[int] = set()  # not confirmed yet

    # --- who leads ------------------------------------------------------------------------

    def ask(self, number: int) -> int:
        if number not in self._new:
            self._new.add(number)
            self._open.add(number)
            self._tickets[number] = self._tickets.get(number, 0) + 1
        return self._tickets[number]

    def level(self, number: int) -> int:
        """The last ticket that everyone has answered."""
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
        """What was asked in this round, one message for each node."""
        if self._new:
            new, self._new = self._new, set()
            self._send(new)

    def say_again(self) -> None:
        """Messages get lost, and epochs go by."""
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

    # --- who follows ----------------------------------------------------------------------

    def asked(self, sender: str, message: Confirm) -> None:
        granted = []
        for question in message.questions:
            replica = self._core.replicas.get(question[0])
            if replica is None:
                continue
            if question[1] < replica.promised:
                self._core.send(sender, Fenced(question[0], replica.promised))
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
                self._open.discard(number)  # whoever waited was told
                continue
            question = number, replica.place.epoch, self._tickets[number]
            for node in replica.needed:
                by_node.setdefault(node, []).append(question)
        for node, questions in by_node.items():
            self._core.send(node, Confirm(questions))

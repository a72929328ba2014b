"""Errands: what a node does at other nodes for somebody who does not know of them.

A plain gRPC client talks to one node, and some requests concern all of them. Such a request becomes
an *errand*: a generator that yields questions and is sent the answers, step by step, until it
returns what the client is told. It knows neither sockets nor clocks, so the simulator runs errands
as a node does.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final, NamedTuple

from weft.proto import wire

#: A question that stays unanswered for this long, beyond its own wait, is given up.
PATIENCE_US: Final = 1_000_000
#: An errand that has not ended by then fails.
LIFE_US: Final = 30_000_000
#: Before the same is tried again.
PAUSE_US: Final = 20_000

SILENT: Final = wire.Failure("UNAVAILABLE", "a node did not answer in time", True)

Said = tuple[wire.AnyAnswer, Sequence[bytes]]


class Question(NamedTuple):
    node: str
    request: wire.AnyRequest
    payload: Sequence[bytes] = ()
    #: The catalogue was just looked at: a queue that is not known is not there.
    fresh: bool = False


class Pause(NamedTuple):
    """Nothing is asked; it goes on after a while."""

    us: int = PAUSE_US


Step = list[Question] | Pause
Errand = Generator[Step, list[Said], Said]


class Inner(NamedTuple):
    """Who asked: an errand of this node itself."""

    errand: int
    position: int
    step: int
    fresh: bool = False


class Running:
    """An errand under way."""

    __slots__ = ("answers", "due", "errand", "open", "step", "to", "until")

    def __init__(self, errand: Errand, to: object, until: int) -> None:
        self.errand = errand
        self.to = to
        self.until = until
        self.step = 0
        self.open = 0  # questions without an answer
        self.answers: list[Said | None] = []
        self.due = until  # when the present step is over in any case

    def ask(self, count: int, due: int) -> None:
        self.step += 1
        self.open = count
        self.answers = [None] * count
        self.due = due

    def answer(self, position: int, step: int, said: Said) -> bool:
        """Takes an answer; whether it was the last one of its step."""
        if step != self.step or self.answers[position] is not None:
            return False
        self.answers[position] = said
        self.open -= 1
        return self.open == 0

    def said(self) -> list[Said]:
        """All answers of the step; who was silent is said to be."""
        return [each if each is not None else (SILENT, ()) for each in self.answers]

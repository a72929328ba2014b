"""Operations: work of a node at other nodes, for a caller that does not know of them.

A plain gRPC client talks to one node, and some requests concern all nodes. Such a request becomes
an *operation*: a generator that yields questions and receives the answers, step by step, until the
operation returns the client's answer. An operation knows neither sockets nor clocks, so the
simulator runs operations as a node does.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Final, NamedTuple

from weft.proto import wire
from weft.proto.handlers import Handlers

#: A question without an answer for this long, beyond its own wait, is given up.
PATIENCE_US: Final = 1_000_000
#: An operation that is still under way after this time fails.
LIFE_US: Final = 30_000_000
#: The pause before a retry.
PAUSE_US: Final = 20_000

SILENT: Final = wire.Failure("UNAVAILABLE", "a node did not answer in time", True)

Said = tuple[wire.AnyAnswer, Sequence[bytes]]


class Question(NamedTuple):
    node: str
    request: wire.AnyRequest
    payload: Sequence[bytes] = ()
    #: The catalogue was synced just now: an unknown queue does not exist.
    fresh: bool = False
    #: Receives the answering node: another one than asked, if that one forwarded the request.
    answered_by: list[str] | None = None


class Pause(NamedTuple):
    """Asks nothing; the operation continues after `us` microseconds."""

    us: int = PAUSE_US


Step = list[Question] | Pause
Operation = Generator[Step, list[Said], Said]

#: Registers the operation of a client's request: a function of the cluster, the request and its
#: payload.
operation_of: Final = Handlers[Callable[..., Operation]]()


class PeerCaller(NamedTuple):
    """The caller is another node; `rid` is that node's own number of the request."""

    node: str
    rid: int
    #: True if a third node forwarded the request.
    forwarded: bool = False


class Inner(NamedTuple):
    """The caller is an operation of this node itself."""

    operation: int
    position: int
    step: int
    fresh: bool = False


class Running:
    """An operation under way."""

    __slots__ = ("answers", "due", "open", "operation", "step", "to", "until")

    def __init__(self, operation: Operation, to: object, until: int) -> None:
        self.operation = operation
        self.to = to
        self.until = until
        self.step = 0
        self.open = 0  # questions without an answer
        self.answers: list[Said | None] = []
        self.due = until  # the time at which the present step ends in any case

    def ask(self, count: int, due: int) -> None:
        self.step += 1
        self.open = count
        self.answers = [None] * count
        self.due = due

    def answer(self, position: int, step: int, said: Said) -> bool:
        """Takes an answer; True if the answer completes the step."""
        if step != self.step or self.answers[position] is not None:
            return False
        self.answers[position] = said
        self.open -= 1
        return self.open == 0

    def has(self, position: int) -> bool:
        """True if the question at the position was answered or given up."""
        return self.answers[position] is not None

    def said(self) -> list[Said]:
        """All answers of the step; SILENT stands for a missing answer."""
        return [each if each is not None else (SILENT, ()) for each in self.answers]

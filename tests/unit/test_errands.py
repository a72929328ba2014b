"""Errands under way: what was asked of a node that never answers is not kept for ever."""

from __future__ import annotations

from collections.abc import Sequence

from weft.dht.messages import Ask
from weft.proto import wire
from weft.server.loom.errand import PATIENCE_US, Errand, Question
from weft.server.loom.errands import LATE_US, Errands


class Host:
    node = "a"

    def __init__(self) -> None:
        self.sent: list[Ask] = []
        self.told: list[wire.AnyAnswer] = []

    def alive(self, node: str) -> bool:
        return True

    def direct(self, request: wire.AnyRequest, payload: Sequence[bytes], to: object) -> None:
        raise AssertionError("nothing is asked of this node itself")

    def send(self, to: str, message: Ask) -> None:
        self.sent.append(message)

    def tell(self, to: object, answer: wire.AnyAnswer, payload: Sequence[bytes]) -> None:
        self.told.append(answer)

    def give_back(self, lent: list[wire.Lent]) -> None:
        raise AssertionError("nothing was lent")


def one_question() -> Errand:
    ((answer, frames),) = yield [Question("silent", wire.Push("q", 1, 1, 1), [bytes(1000)])]
    return answer, frames


def test_questions_without_an_answer_are_forgotten_in_time() -> None:
    host = Host()
    errands = Errands(host)
    now, every = 0, 1_000_000
    for number in range(1000):
        now += every
        errands.begin(now)
        errands.start(one_question(), number, now + 30 * PATIENCE_US)
        errands.work()
    assert len(host.sent) == 1000
    assert len(host.told) >= 990, "each was given up after its patience"
    assert len(errands._asked) <= LATE_US // every + 2

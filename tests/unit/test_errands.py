"""Errands under way: what they forget, and what they do not take for an answer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from weft.dht.messages import Ask
from weft.errors import QueueNotFound, StoreDamaged, WeftError
from weft.proto import wire
from weft.server.loom.errand import PATIENCE_US, Errand, Pause, Question
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


def raises(error: WeftError) -> Errand:
    yield Pause()
    raise error


def go(errand: Errand) -> Host:
    host = Host()
    errands = Errands(host)
    errands.begin(0)
    errands.start(errand, 1, PATIENCE_US)
    errands.begin(PATIENCE_US // 2)
    errands.work()
    return host


def test_an_error_is_the_answer() -> None:
    (answer,) = go(raises(QueueNotFound("no queue q"))).told
    assert isinstance(answer, wire.Failure)
    assert answer.code == "QUEUE_NOT_FOUND"


def test_a_failed_disk_is_no_answer() -> None:
    with pytest.raises(StoreDamaged):
        go(raises(StoreDamaged("000005.ldb is damaged")))

"""Running operations: cleanup, and replies that are not accepted as answers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from weft.dht.messages import PeerReply, PeerRequest
from weft.errors import QueueNotFound, StoreDamaged, WeftError
from weft.proto import wire
from weft.server.core.operation import PATIENCE_US, Inner, Operation, Pause, PeerCaller, Question
from weft.server.core.operations import LATE_US, Operations


class Host:
    node = "a"

    def __init__(self) -> None:
        self.sent: list[PeerRequest | PeerReply] = []
        self.told: list[wire.AnyAnswer] = []
        self.returned: list[wire.Nack] = []
        self.given_back: list[wire.Lent] = []

    def alive(self, node: str) -> bool:
        return True

    def direct(self, request: wire.AnyRequest, payload: Sequence[bytes], to: object) -> None:
        raise AssertionError("nothing is asked of this node itself")

    def send(self, to: str, message: PeerRequest | PeerReply) -> None:
        self.sent.append(message)

    def reply(self, to: object, answer: wire.AnyAnswer, payload: Sequence[bytes]) -> None:
        self.told.append(answer)

    def give_back(self, lent: list[wire.Lent]) -> None:
        self.given_back += lent

    def return_lent(self, nack: wire.Nack) -> None:
        self.returned.append(nack)


def one_question() -> Operation:
    ((answer, frames),) = yield [Question("silent", wire.Push("q", 1, 1, 1), [bytes(1000)])]
    return answer, frames


def test_questions_without_an_answer_are_forgotten_in_time() -> None:
    host = Host()
    operations = Operations(host)
    now, every = 0, 1_000_000
    for number in range(1000):
        now += every
        operations.begin(now)
        operations.start(one_question(), number, now + 30 * PATIENCE_US)
        operations.work()
    assert len(host.sent) == 1000
    assert len(host.told) >= 990, "each was given up after its patience"
    assert len(operations._asked) <= LATE_US // every + 2


def raises(error: WeftError) -> Operation:
    yield Pause()
    raise error


def go(operation: Operation) -> Host:
    host = Host()
    operations = Operations(host)
    operations.begin(0)
    operations.start(operation, 1, PATIENCE_US)
    operations.begin(PATIENCE_US // 2)
    operations.work()
    return host


def test_an_error_is_the_answer() -> None:
    (answer,) = go(raises(QueueNotFound("no queue q"))).told
    assert isinstance(answer, wire.Failure)
    assert answer.code == "QUEUE_NOT_FOUND"


def test_a_failed_disk_is_no_answer() -> None:
    with pytest.raises(StoreDamaged):
        go(raises(StoreDamaged("000005.ldb is damaged")))


LENT = wire.Lent(3, 4, 5, 0, 1, 1, 1, 1, 0, 1000)


def a_wait(answered_by: list[str]) -> Operation:
    where = wire.Where("q", 1_000, {}, wire.Pop("q", 1))
    ((answer, frames),) = yield [Question("owner", where, answered_by=answered_by)]
    return answer, frames


def waiting(answered_by: list[str]) -> tuple[Host, Operations, int]:
    host = Host()
    operations = Operations(host)
    operations.begin(0)
    operations.start(a_wait(answered_by), "client", PATIENCE_US)
    (ask,) = host.sent
    host.sent.clear()
    return host, operations, ask.rid


def test_a_forwarded_wait_may_be_answered_by_any_node() -> None:
    answered_by: list[str] = []
    host, operations, rid = waiting(answered_by)
    popped = wire.Popped([LENT])
    operations.replied("holder", PeerReply(rid, popped, [b""]))
    assert (host.told, answered_by) == ([popped], ["holder"])


def test_what_is_lent_to_a_client_that_has_gone_goes_back_uncounted() -> None:
    host, operations, rid = waiting([])
    operations.cancel("client")
    operations.replied("holder", PeerReply(rid, wire.Popped([LENT]), [b""]))
    assert host.returned == [wire.Nack("q", [wire.Receipt(3, 4, 5)], counted=False)]


def test_what_is_lent_after_the_owner_of_the_list_has_died_goes_back_uncounted() -> None:
    host, operations, rid = waiting([])
    host.alive = lambda node: False  # type: ignore[method-assign]
    operations.view_changed()
    operations.work()
    assert [type(answer) for answer in host.told] == [wire.Failure]
    operations.replied("holder", PeerReply(rid, wire.Popped([LENT]), [b""]))
    assert host.returned == [wire.Nack("q", [wire.Receipt(3, 4, 5)], counted=False)]


def test_an_ordinary_question_is_answered_by_the_node_that_was_asked() -> None:
    host = Host()
    operations = Operations(host)
    operations.begin(0)
    operations.start(one_question(), 1, PATIENCE_US)
    operations.replied("another", PeerReply(host.sent[0].rid, wire.Done(1), []))
    assert not host.told
    operations.replied("silent", PeerReply(host.sent[0].rid, wire.Done(1), []))
    assert host.told == [wire.Done(1)]


def test_an_answer_to_a_forwarded_request_is_relayed_for_an_old_node() -> None:
    """A node that does not know `reply_to` answers the node that forwarded the request."""
    host = Host()
    operations = Operations(host)
    operations.begin(0)
    operations.forward("old", wire.Pop("q", 1), PeerCaller("waiting", 77))
    (ask,) = host.sent
    assert isinstance(ask, PeerRequest)
    assert ask.reply_to == ("waiting", 77)
    host.sent.clear()
    popped = wire.Popped([LENT])
    operations.replied("another", PeerReply(ask.rid, popped, [b""]))
    assert not host.sent
    operations.replied("old", PeerReply(ask.rid, popped, [b""]))
    assert host.sent == [PeerReply(77, popped, [b""])]


def test_forwarded_requests_are_forgotten() -> None:
    operations = Operations(Host())
    for number in range(100):
        operations.begin(number * 1_000_000)
        operations.forward("b", wire.Pop("q", 1), PeerCaller("c", number))
    assert len(operations._forwarded) <= 12


def own_pop() -> Operation:
    ((answer, frames),) = yield [Question(Host.node, wire.Pop("q", 1))]
    return answer, frames


@pytest.mark.parametrize("ends", ["cancelled", "late", "stopped"])
def test_what_this_node_lent_to_an_errand_that_ends_first_goes_back(ends: str) -> None:
    """The answer has arrived, and the operation has not seen it: it resumes in the next round."""
    host = Host()
    host.direct = lambda *_: None  # type: ignore[method-assign]
    operations = Operations(host)
    operations.begin(0)
    operations.start(own_pop(), "client", PATIENCE_US)
    operations.work()
    operations.answered(Inner(1, 0, 1), (wire.Popped([LENT]), [b""]))
    if ends == "cancelled":
        operations.cancel("client")
    elif ends == "late":
        operations.begin(PATIENCE_US)
        operations.work()
    else:
        operations.end_all(wire.Failure("SHUTTING_DOWN", "", True))
    assert host.given_back == [LENT]
    assert not any(isinstance(each, wire.Popped) for each in host.told)

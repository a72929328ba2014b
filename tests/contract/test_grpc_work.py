"""Work: one stream with credit, deliveries, settles and confirmations, on a real node."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest

from tests.contract.duplex import Duplex
from tests.contract.served import Served, eventually, refused
from weft import errors, limits
from weft.proto import weft_pb2 as pb


class Worker:
    """A Work stream, with its answers sorted by kind."""

    def __init__(self, served: Served, name: str, credit: int = 0, **opened: Any) -> None:
        self.stream = Duplex(served.queue.Work)
        self.messages: list[pb.Message] = []
        self.lots: list[pb.Lot] = []
        self.confirmations: list[pb.Confirmation] = []
        opening = pb.WorkOpen(queue=name, **opened)
        self.stream.send(pb.WorkRequest(open=opening, credit=credit))

    def read(self) -> None:
        response = self.stream.next()
        self.messages += response.messages
        self.lots += response.lots
        self.confirmations += response.confirmations

    def get(self, count: int) -> list[pb.Message]:
        """Reads until so many messages have come; returns them all."""
        while len(self.messages) < count:
            self.read()
        return self.messages

    def grant(self, credit: int) -> None:
        self.stream.send(pb.WorkRequest(credit=credit))

    def settle(self, *settles: pb.Settle) -> list[pb.Confirmation]:
        before = len(self.confirmations)
        self.stream.send(pb.WorkRequest(settles=settles))
        while len(self.confirmations) < before + len(settles):
            self.read()
        return self.confirmations[before:]

    def ack(self, *messages: pb.Message, tag: int = 0) -> pb.Confirmation:
        (found,) = self.settle(pb.Settle(receipts=[m.receipt for m in messages], tag=tag))
        return found


def push(served: Served, name: str, count: int) -> None:
    served.push(name, *[b"%d" % number for number in range(count)])


def test_the_node_delivers_within_the_credit(served: Served) -> None:
    name = served.make()
    push(served, name, 10)
    worker = Worker(served, name, credit=3)
    assert [message.body for message in worker.get(3)] == [b"0", b"1", b"2"]
    time.sleep(0.1)
    assert served.describe(name).leased == 3
    worker.grant(2)
    worker.grant(2)
    assert len(worker.get(7)) == 7
    assert worker.ack(*worker.messages, tag=5) == pb.Confirmation(tag=5, done=7)
    assert served.describe(name).acked == 7
    worker.stream.end()
    assert worker.stream.rest() == []


def test_a_worker_waits_for_messages(served: Served) -> None:
    name = served.make()
    worker = Worker(served, name, credit=10)
    eventually(lambda: served.describe(name).waiting_pops == 1)
    push(served, name, 1)
    worker.get(1)
    push(served, name, 1)
    worker.get(2)
    worker.stream.cancel()


def test_lots_are_delivered_and_settled_in_part(served: Served) -> None:
    name = served.make()
    push(served, name, 10)
    worker = Worker(served, name, credit=100, columns=True)
    worker.read()
    (lot,) = worker.lots
    assert list(lot.messages.bodies) == [b"%d" % number for number in range(10)]
    first = pb.LotPart(receipt=lot.receipt, ranges=[pb.LotRange(first=0, count=4)])
    last = pb.LotPart(receipt=lot.receipt, ranges=[pb.LotRange(first=9, count=1)])
    whole = pb.LotPart(receipt=lot.receipt)
    acked, nacked = worker.settle(
        pb.Settle(tag=1, lots=[first]),
        pb.Settle(tag=2, action=pb.Settle.NACK, lots=[last], delay_ms=60_000, reason="why"),
    )
    assert acked == pb.Confirmation(tag=1, done=4)
    assert nacked == pb.Confirmation(tag=2, done=1)
    (again,) = worker.settle(pb.Settle(tag=3, lots=[whole]))
    assert (again.done, again.already) == (5, 4)
    assert list(again.lost_lots) == [last]
    worker.stream.end()


def test_a_final_nack_is_a_dead_letter_at_once_by_message_by_lot_and_on_a_stream(
    served: Served,
) -> None:
    name = served.make(dead_letter="final.dead", max_deliveries=9)
    served.push(name, b"message", b"lot", b"stream")
    (one,) = served.pop(name)
    nack = pb.NackRequest(queue=name, receipts=[one.receipt], final=True)
    assert served.queue.Nack(nack).done == 1
    (lot,) = served.queue.PopBatches(pb.PopBatchesRequest(queue=name, limit=1)).lots
    part = pb.LotPart(receipt=lot.receipt)
    nacks = pb.NackBatchesRequest(queue=name, lots=[part], reason="lot", final=True)
    assert served.queue.NackBatches(nacks).done == 1
    worker = Worker(served, name, credit=1)
    (last,) = worker.get(1)
    worker.settle(pb.Settle(action=pb.Settle.NACK, receipts=[last.receipt], final=True))
    dead = served.queue.Peek(pb.PeekRequest(queue="final.dead", limit=9)).messages
    assert [message.body for message in dead] == [b"message", b"lot", b"stream"]
    assert dead[1].dead_reason == "1 deliveries, the last one rejected: lot"
    assert served.describe(name).ready == 0
    worker.stream.end()


def test_wrong_settles_are_refused_or_reported_lost_and_the_stream_goes_on(served: Served) -> None:
    name = served.make()
    push(served, name, 2)
    worker = Worker(served, name, credit=2)
    one, two = worker.get(2)
    forged, lot = b"forged", pb.LotPart(receipt=b"short")
    lost, delay, action, many = worker.settle(
        pb.Settle(tag=1, receipts=[forged, bytes(20)], lots=[lot]),
        pb.Settle(tag=2, action=pb.Settle.NACK, receipts=[one.receipt], delay_ms=-1),
        pb.Settle(tag=3, action=99, receipts=[one.receipt]),  # type: ignore[arg-type]
        pb.Settle(tag=4, receipts=[b""] * (limits.RECEIPTS_MAX + 1)),
    )
    by_tag = {each.tag: each for each in (lost, delay, action, many)}
    assert sorted(by_tag[1].lost_receipts) == sorted([forged, bytes(20)])
    assert list(by_tag[1].lost_lots) == [lot]
    assert [by_tag[tag].refusal.code for tag in (2, 3, 4)] == [
        "INVALID_ARGUMENT", "INVALID_ARGUMENT", "TOO_LARGE",
    ]  # fmt: skip
    assert worker.ack(one, two).done == 2
    worker.stream.end()


def test_a_settle_over_another_call_counts(served: Served) -> None:
    name = served.make(lease_ms=60_000)
    push(served, name, 2)
    worker = Worker(served, name, credit=2)
    one, two = worker.get(2)
    assert served.ack(name, one.receipt).done == 1
    assert worker.ack(one, two) == pb.Confirmation(done=1, already=1)
    worker.stream.end()


def test_extend_keeps_a_message_with_the_worker(served: Served) -> None:
    name = served.make(lease_ms=1000)
    push(served, name, 1)
    worker = Worker(served, name, credit=1)
    (message,) = worker.get(1)
    extend = pb.Settle(action=pb.Settle.EXTEND, receipts=[message.receipt], lease_ms=60_000)
    (found,) = worker.settle(extend)
    assert found.done == 1
    time.sleep(1.5)
    assert served.describe(name).leased == 1
    assert worker.ack(message).done == 1
    worker.stream.end()


@pytest.mark.parametrize(
    ("requests", "error", "says"),
    [
        ([pb.WorkRequest(credit=1)], errors.InvalidArgument, "set open"),
        ([pb.WorkRequest(open=pb.WorkOpen(queue="nowhere"), credit=1)], errors.QueueNotFound, ""),
        (
            [pb.WorkRequest(open=pb.WorkOpen(queue="q"))] * 2,
            errors.InvalidArgument,
            "only the first",
        ),
        (
            [pb.WorkRequest(open=pb.WorkOpen(queue="q"), credit=limits.POP_COUNT_MAX + 1)],
            errors.InvalidArgument,
            "unused credit",
        ),
        (
            [
                pb.WorkRequest(open=pb.WorkOpen(queue="q"), credit=limits.POP_COUNT_MAX),
                pb.WorkRequest(credit=1),
            ],
            errors.InvalidArgument,
            "unused credit",
        ),
        (
            [pb.WorkRequest(open=pb.WorkOpen(queue="q", max_bytes=1))],
            errors.InvalidArgument,
            "max_bytes",
        ),
        (
            [pb.WorkRequest(open=pb.WorkOpen(queue="q", lease_ms=-1), credit=1)],
            errors.InvalidArgument,
            "lease_ms",
        ),
    ],
)
def test_a_wrong_stream_is_refused(
    served: Served, requests: list[pb.WorkRequest], error: type[errors.WeftError], says: str
) -> None:
    served.queue.CreateQueue(pb.CreateQueueRequest(queue="q"))
    stream = Duplex(served.queue.Work)
    stream.send(*requests)
    refused(stream.next, error, says)
    stream.end()


def test_malformed_bytes_end_the_stream_and_return_the_messages(served: Served) -> None:
    name = served.make()
    push(served, name, 1)
    method: Any = served.channel.stream_stream("/weft.v1.Queue/Work")
    stream = Duplex(method)
    stream.send(pb.WorkRequest(open=pb.WorkOpen(queue=name), credit=1).SerializeToString())
    assert pb.WorkResponse.FromString(stream.next()).messages
    stream.send(b"\xff\xff")
    refused(stream.next, errors.InvalidArgument, "not a message")
    stream.end()
    eventually(lambda: served.describe(name).ready == 1)


def test_an_empty_stream_is_refused(served: Served) -> None:
    stream = Duplex(served.queue.Work)
    stream.end()
    refused(stream.next, errors.InvalidArgument, "set open")


# --- the end of a stream ----------------------------------------------------------------------


def test_a_worker_that_ends_returns_what_it_has_and_it_counts(served: Served) -> None:
    name = served.make()
    push(served, name, 3)
    worker = Worker(served, name, credit=3)
    one, *_ = worker.get(3)
    worker.ack(one)
    worker.stream.end()
    assert worker.stream.rest() == []
    eventually(lambda: served.describe(name).ready == 2)
    assert [message.deliveries for message in served.pop(name, 3)] == [2, 2]


def test_settles_before_the_end_are_confirmed(served: Served) -> None:
    name = served.make()
    push(served, name, 2)
    worker = Worker(served, name, credit=2)
    receipts = [message.receipt for message in worker.get(2)]
    worker.stream.send(pb.WorkRequest(settles=[pb.Settle(tag=9, receipts=receipts)]))
    worker.stream.end()
    (response,) = worker.stream.rest()
    assert list(response.confirmations) == [pb.Confirmation(tag=9, done=2)]


def test_prefetched_messages_return_uncounted_and_handed_ones_counted(served: Served) -> None:
    name = served.make()
    push(served, name, 3)
    worker = Worker(served, name, credit=3, prefetch=True)
    first, *_ = worker.get(3)
    handed = pb.Settle(
        action=pb.Settle.EXTEND, receipts=[first.receipt], lease_ms=30_000, handed=True
    )
    (found,) = worker.settle(handed)
    assert found.done == 1
    worker.stream.end()
    assert worker.stream.rest() == []
    eventually(lambda: served.describe(name).ready == 3)
    deliveries = {message.body: message.deliveries for message in served.pop(name, 3)}
    assert deliveries == {b"0": 2, b"1": 1, b"2": 1}


@pytest.mark.parametrize(("prefetch", "deliveries"), [(False, 2), (True, 1)])
def test_a_cancelled_stream_returns_its_messages_soon(
    served: Served, prefetch: bool, deliveries: int
) -> None:
    name = served.make(lease_ms=3_600_000)
    push(served, name, 2)
    worker = Worker(served, name, credit=2, prefetch=prefetch)
    worker.get(2)
    worker.stream.cancel()
    eventually(lambda: served.describe(name).ready == 2)
    assert {message.deliveries for message in served.pop(name, 2)} == {deliveries}


_WORKER = """
import sys, grpc
from weft.proto import weft_pb2 as pb, weft_pb2_grpc
address, name = sys.argv[1:]
opened = pb.WorkOpen(queue=name, prefetch=True)
def requests():
    yield pb.WorkRequest(open=opened, credit=4)
    message = yield from wait()
def wait():
    receipt = bytes.fromhex(input())
    yield pb.WorkRequest(settles=[pb.Settle(action=pb.Settle.EXTEND, receipts=[receipt],
        lease_ms=3_600_000, handed=True)])
    input()
stub = weft_pb2_grpc.QueueStub(grpc.insecure_channel(address))
for response in stub.Work(requests()):
    for message in response.messages:
        print("message", message.receipt.hex(), flush=True)
    for confirmation in response.confirmations:
        print("confirmed", confirmation.done, flush=True)
"""


def test_a_killed_worker_gives_its_messages_back(served: Served) -> None:
    """One message was handed to the application: it counts. Three were only buffered."""
    name = served.make(lease_ms=3_600_000)
    push(served, name, 4)
    worker = subprocess.Popen(
        [sys.executable, "-c", _WORKER, served.address, name],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        receipts = [worker.stdout.readline().split()[1] for _ in range(4)]
        print(receipts[0], file=worker.stdin, flush=True)
        assert worker.stdout.readline() == "confirmed 1\n"
        assert served.describe(name).leased == 4
    finally:
        worker.kill()
        worker.communicate()
    eventually(lambda: served.describe(name).ready == 4)
    deliveries = {message.body: message.deliveries for message in served.pop(name, 4)}
    assert deliveries == {b"0": 2, b"1": 1, b"2": 1, b"3": 1}


def test_a_message_that_may_have_killed_a_worker_comes_alone(served: Served) -> None:
    dead = served.make()
    name = served.make(max_deliveries=2, dead_letter=dead, lease_ms=3_600_000)
    push(served, name, 1)
    killed = Worker(served, name, credit=1)
    killed.get(1)
    killed.stream.cancel()
    eventually(lambda: served.describe(name).ready == 1)
    served.push(name, b"other")
    worker = Worker(served, name, credit=10)
    bodies: list[bytes] = []
    while len(bodies) < 2:
        (message,) = worker.get(1)
        bodies.append(message.body)
        assert served.describe(name).leased == 1, "it is alone"
        worker.messages.clear()
        worker.ack(message)
    assert sorted(bodies) == [b"0", b"other"]
    worker.stream.end()


def test_large_messages_come_in_pages_and_one_too_large_ends_the_stream(served: Served) -> None:
    name = served.make()
    served.push(name, *[bytes([number]) * 600 for number in range(5)], bytes(5000))
    worker = Worker(served, name, credit=10, max_bytes=2048)
    assert [message.body[0] for message in worker.get(5)] == [0, 1, 2, 3, 4]
    refused(worker.read, errors.TooLarge, "max_bytes of at least")
    worker.stream.end()
    eventually(lambda: served.describe(name).ready == 6)
    by_size = {len(m.body): m.deliveries for m in served.pop(name, 6)}
    assert by_size == {600: 2, 5000: 1}


def test_a_stopping_node_leaves_the_messages_with_the_worker(own: Served) -> None:
    name = own.make()
    push(own, name, 1)
    worker = Worker(own, name, credit=2)
    worker.get(1)
    own.edge.stop(60)
    refused(worker.read, errors.ShuttingDown)
    worker.stream.end()
    description: list[Any] = []
    assert own.node.look(lambda: description.append(own.node._node_core.engine.queues[name].leased))
    eventually(lambda: bool(description))
    assert description == [1]

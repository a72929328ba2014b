"""The gRPC service over a real node: every call of weft.proto, and calls that end early."""

from __future__ import annotations

import time

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import (
    ProtoReflectionDescriptorDatabase,
)

from tests.contract.served import NAMES, Served, eventually, refused
from weft import errors, limits
from weft.ids import MessageId
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc
from weft.server.edges.grpc_edge import SERVICES

# --- queues -----------------------------------------------------------------------------------


def test_queues_are_created_changed_listed_and_deleted(served: Served) -> None:
    settings = pb.Settings(
        lease_ms=1000, max_deliveries=3, dead_letter="z.dead", dedup_window_ms=0, max_messages=9
    )
    create = pb.CreateQueueRequest(queue="z", settings=settings)
    assert served.queue.CreateQueue(create).created
    assert not served.queue.CreateQueue(create).created
    served.queue.UpdateQueue(pb.UpdateQueueRequest(queue="z", max_messages=0))
    settings.max_messages = 0
    assert served.describe("z").settings == settings
    page = served.queue.ListQueues(pb.ListQueuesRequest(prefix="z", limit=1))
    assert ([info.name for info in page.queues], page.more) == (["z"], True)
    rest = served.queue.ListQueues(pb.ListQueuesRequest(prefix="z", after="z"))
    assert ([info.name for info in rest.queues], rest.more) == (["z.dead"], False)
    served.push("z", b"1", b"2")
    assert served.queue.DeleteQueue(pb.DeleteQueueRequest(queue="z")).messages == 2
    refused(lambda: served.describe("z"), errors.QueueNotFound, "z")


def test_what_is_wrong_is_said_by_the_engine(served: Served) -> None:
    name = served.make()
    refused(lambda: served.pop("nothing"), errors.QueueNotFound)
    refused(lambda: served.pop(name, limit=-1), errors.InvalidArgument, "limit")
    refused(lambda: served.pop(name, wait_ms=10**9), errors.InvalidArgument, "wait_ms")
    refused(
        lambda: served.push(name, *[b""] * (limits.BATCH_COUNT_MAX + 1)),
        errors.TooLarge,
        str(limits.BATCH_COUNT_MAX),
    )
    refused(lambda: served.push(name, bytes(limits.BODY_BYTES_MAX + 1)), errors.TooLarge)
    other = pb.CreateQueueRequest(queue=name, settings=pb.Settings(lease_ms=999))
    refused(lambda: served.queue.CreateQueue(other), errors.QueueExists, "lease_ms is 30000")
    dead = pb.Settings(max_deliveries=1, dead_letter=name)
    served.queue.CreateQueue(pb.CreateQueueRequest(queue=f"{name}-user", settings=dead))
    refused(lambda: served.queue.DeleteQueue(pb.DeleteQueueRequest(queue=name)), errors.QueueInUse)


def test_a_full_queue_says_try_again(served: Served) -> None:
    name = served.make(max_messages=1)
    served.push(name, b"1")
    refused(lambda: served.push(name, b"2"), errors.QueueFull)


# --- messages ---------------------------------------------------------------------------------


def test_a_message_goes_through_unchanged(served: Served) -> None:
    name = served.make()
    sent = [
        pb.OutMessage(body=b"\x00\xff", headers={"h": "ü", "i": ""}, key="k"),
        pb.OutMessage(body=b""),
    ]
    ids = served.queue.Push(pb.PushRequest(queue=name, messages=sent, priority=7)).ids
    shown = served.queue.Peek(pb.PeekRequest(queue=name, limit=9)).messages
    got = served.pop(name, limit=9)
    assert [message.receipt for message in shown] == [b"", b""]
    for messages in (shown, got):
        assert [message.id for message in messages] == list(ids)
        assert [
            pb.OutMessage(body=m.body, headers=m.headers, key=m.key if m.HasField("key") else None)
            for m in messages
        ] == sent
        assert [message.priority for message in messages] == [7, 7]
        assert all(abs(message.pushed_ms / 1000 - time.time()) < 60 for message in messages)
    assert [(message.deliveries, message.lease_ms) for message in got] == [(1, 30_000)] * 2
    assert [MessageId.parse(text).index for text in ids] == [0, 1]


def test_a_named_push_is_stored_once(served: Served) -> None:
    name = served.make()
    request = pb.PushRequest(
        queue=name, messages=[pb.OutMessage(body=b"x")], producer=2**56 - 1, batch=2**40 - 1
    )
    first, second = served.queue.Push(request), served.queue.Push(request)
    assert (first.duplicate, second.duplicate) == (False, True)
    assert first.ids == second.ids
    assert served.describe(name).ready == 1
    assert first.durability == "os"


def test_a_push_without_a_name_is_never_a_duplicate(served: Served) -> None:
    name = served.make()
    ids = {text for _ in range(3) for text in served.push(name, b"same")}
    assert len(ids) == served.describe(name).ready == 3


def test_the_largest_batch_comes_back_in_one_pop(served: Served) -> None:
    name = served.make()
    served.push(name, *[b"x"] * limits.BATCH_COUNT_MAX)
    messages = served.pop(name, limits.POP_COUNT_MAX)
    assert len(messages) == limits.BATCH_COUNT_MAX
    settled = served.ack(name, *(message.receipt for message in messages))
    assert (settled.done, list(settled.lost)) == (limits.BATCH_COUNT_MAX, [])


def test_the_largest_message_comes_back(served: Served) -> None:
    name = served.make()
    served.push(name, bytes(limits.BODY_BYTES_MAX))
    pop = pb.PopRequest(queue=name, limit=2, max_bytes=limits.GRPC_BYTES_MAX)
    popped = served.queue.Pop(pop).messages
    assert [len(message.body) for message in popped] == [limits.BODY_BYTES_MAX]


def test_an_answer_is_never_more_than_any_client_takes(served: Served) -> None:
    name = served.make()
    served.push(name, *[bytes([number]) * limits.MIB for number in range(5)])
    with grpc.insecure_channel(served.address) as channel:  # with gRPC's default limit
        queue = weft_pb2_grpc.QueueStub(channel)  # type: ignore[no-untyped-call]
        assert len(queue.Peek(pb.PeekRequest(queue=name, limit=9)).messages) == 3
        first = queue.Pop(pb.PopRequest(queue=name, limit=9)).messages
        eventually(lambda: served.describe(name).ready == 2)
        second = queue.Pop(pb.PopRequest(queue=name, limit=9)).messages
    assert [m.body[0] for m in [*first, *second]] == [0, 1, 2, 3, 4]
    assert {m.deliveries for m in [*first, *second]} == {1}
    assert served.ack(name, *(m.receipt for m in [*first, *second])).done == 5


def test_a_pop_waits_for_a_push(served: Served) -> None:
    name = served.make()
    waiting = served.queue.Pop.future(pb.PopRequest(queue=name, wait_ms=20_000))
    eventually(lambda: served.describe(name).waiting_pops == 1)
    served.push(name, b"here")
    assert [message.body for message in waiting.result(timeout=100).messages] == [b"here"]


def test_ack_nack_and_extend_count_each_message(served: Served) -> None:
    name = served.make()
    served.push(name, *[b"%d" % number for number in range(6)])
    receipts = [message.receipt for message in served.pop(name, 6)]
    extend = pb.ExtendRequest(queue=name, receipts=receipts, lease_ms=60_000)
    assert served.queue.Extend(extend) == pb.SettleResponse(done=6)
    nack = pb.NackRequest(queue=name, receipts=[receipts[1], receipts[4]], delay_ms=60_000)
    assert served.queue.Nack(nack) == pb.SettleResponse(done=2)
    assert served.ack(name, receipts[0], receipts[0]) == pb.SettleResponse(done=1)
    # Of the one lease: one was acked, two were nacked, three are still out.
    answer = served.ack(name, *receipts, b"forged", bytes(20))
    assert (answer.done, answer.already) == (3, 1)
    assert sorted(answer.lost) == sorted([receipts[1], receipts[4], b"forged", bytes(20)])
    assert served.ack(name, receipts[0]) == pb.SettleResponse(already=1)
    info = served.describe(name)
    assert (info.ready, info.leased, info.delayed, info.acked) == (0, 0, 2, 4)


def test_a_forged_index_does_not_spoil_the_others(served: Served) -> None:
    name = served.make()
    served.push(name, b"1")
    (message,) = served.pop(name)
    forged = message.receipt[:-2] + b"\x0f\xff"
    assert served.ack(name, message.receipt, forged) == pb.SettleResponse(done=1, lost=[forged])


def test_an_extension_of_a_lease_in_part_lost(served: Served) -> None:
    name = served.make()
    served.push(name, b"1", b"2")
    one, two = (message.receipt for message in served.pop(name, 2))
    served.ack(name, one)
    extend = pb.ExtendRequest(queue=name, receipts=[one, two], lease_ms=1000)
    assert served.queue.Extend(extend) == pb.SettleResponse(done=1, lost=[one])


def test_purge_and_redrive(served: Served) -> None:
    dead = next(NAMES)
    name = next(NAMES)
    settings = pb.Settings(max_deliveries=1, dead_letter=dead)
    served.queue.CreateQueue(pb.CreateQueueRequest(queue=name, settings=settings))
    served.push(name, b"1")
    (message,) = served.pop(name)
    nack = pb.NackRequest(queue=name, receipts=[message.receipt], reason="too hot")
    served.queue.Nack(nack)
    (letter,) = served.queue.Peek(pb.PeekRequest(queue=dead)).messages
    assert "too hot" in letter.dead_reason
    assert served.queue.Redrive(pb.RedriveRequest(queue=dead)).messages == 1
    assert served.describe(name).ready == 1
    assert served.queue.PurgeQueue(pb.PurgeQueueRequest(queue=name)).messages == 1
    assert served.pop(name) == []


# --- calls that end early ---------------------------------------------------------------------


def test_a_pop_answers_before_its_deadline(served: Served) -> None:
    name = served.make()
    for seconds in (0.6, 2, 6, 20):  # the margin is small for a busy machine
        before = time.monotonic()
        try:
            answer = served.queue.Pop(pb.PopRequest(queue=name, wait_ms=60_000), timeout=seconds)
        except grpc.RpcError:
            continue
        assert list(answer.messages) == []
        assert seconds / 2 < time.monotonic() - before < seconds + 1
        return
    pytest.fail("it never answered in time")


def test_a_cancelled_pop_lends_nothing(served: Served) -> None:
    name = served.make()
    waiting = served.queue.Pop.future(pb.PopRequest(queue=name, wait_ms=30_000))
    eventually(lambda: served.describe(name).waiting_pops == 1)
    waiting.cancel()
    eventually(lambda: served.describe(name).waiting_pops == 0)
    served.push(name, b"1")
    assert [message.body for message in served.pop(name)] == [b"1"]


def test_no_message_is_lost_when_pops_are_cancelled_in_a_race_with_pushes(served: Served) -> None:
    name = served.make(lease_ms=200)
    for _ in range(50):
        waiting = served.queue.Pop.future(pb.PopRequest(queue=name, wait_ms=30_000))
        push = pb.PushRequest(queue=name, messages=[pb.OutMessage(body=b"x")])
        pushing = served.queue.Push.future(push)
        waiting.cancel()
        pushing.result()
    # An answer may be in flight when its call is cancelled: its message returns later.
    eventually(lambda: served.describe(name).ready == 50)
    assert served.describe(name).waiting_pops == 0


# --- the table and the cluster ----------------------------------------------------------------


def test_table(served: Served) -> None:
    table = served.table
    assert not table.Lookup(pb.LookupRequest(key="k")).HasField("value")
    table.Insert(pb.InsertRequest(key="k", value=b""))
    assert table.Lookup(pb.LookupRequest(key="k")) == pb.LookupResponse(value=b"")
    assert table.Append(pb.AppendRequest(key="k", value=b"ab")).length == 2
    swap = pb.CompareAndSwapRequest(key="k", old=b"no", new=b"x")
    assert table.CompareAndSwap(swap) == pb.CompareAndSwapResponse(swapped=False, current=b"ab")
    swap.old = b"ab"
    assert table.CompareAndSwap(swap).swapped
    absent = pb.CompareAndSwapRequest(key="k", new=b"y")
    assert not table.CompareAndSwap(absent).swapped
    assert table.Remove(pb.RemoveRequest(key="k")).removed
    assert not table.Remove(pb.RemoveRequest(key="k")).removed
    assert table.CompareAndSwap(absent).swapped
    gone = pb.CompareAndSwapRequest(key="k", old=b"y")
    assert table.CompareAndSwap(gone).swapped
    assert not table.Lookup(pb.LookupRequest(key="k")).HasField("value")
    large = pb.InsertRequest(key="k", value=bytes(limits.TABLE_VALUE_BYTES_MAX + 1))
    refused(lambda: table.Insert(large), errors.TooLarge)


def test_view_and_status(served: Served) -> None:
    view = served.cluster.View(pb.ViewRequest())
    assert (view.cluster, view.partitions) == (
        served.directory.cluster,
        served.directory.partitions,
    )
    assert [(node.id, node.zmq) for node in view.nodes] == [
        (served.directory.node, str(served.node.zmq_address))
    ]
    name = served.make()
    served.push(name, b"1")
    status = served.cluster.Status(pb.StatusRequest())
    assert status.node == served.directory.node
    assert status.ready >= 1
    assert status.commits >= 1


def test_health_and_reflection(served: Served) -> None:
    for service in ("", *SERVICES):
        answer = served.health.Check(health_pb2.HealthCheckRequest(service=service))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    named = set(ProtoReflectionDescriptorDatabase(served.channel).get_services())
    assert named >= {"weft.v1.Queue", "weft.v1.Table", "weft.v1.Cluster", "grpc.health.v1.Health"}

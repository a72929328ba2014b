"""Clients with small flow-control windows: an answer that waits for a window is delivered once.

grpc-go begins with windows of 64 KiB, so that the answers to a few pops fill its connection.
"""

from __future__ import annotations

import grpc
import pytest

from tests.conformance.served_address import ServedAddress
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc

pytestmark = pytest.mark.process

POPS, BATCH = 4, 1000
#: A stream's window of about 1 KiB, which gRPC does not enlarge by itself.
OPTIONS = [("grpc.http2.lookahead_bytes", 1024), ("grpc.http2.bdp_probe", 0)]


def test_leases_hold_when_an_answer_waits_for_a_window(node: ServedAddress) -> None:
    with grpc.insecure_channel(str(node), options=OPTIONS) as channel:
        stub = weft_pb2_grpc.QueueStub(channel)  # type: ignore[no-untyped-call]
        stub.CreateQueue(pb.CreateQueueRequest(queue="windows"), timeout=100)
        messages = [pb.OutMessage(body=bytes(128))] * BATCH
        for _ in range(POPS):
            stub.Push(pb.PushRequest(queue="windows", messages=messages), timeout=100)
        request = pb.PopRequest(queue="windows", limit=BATCH)
        pops = [stub.Pop.future(request, timeout=100) for _ in range(POPS)]
        popped = [each.result().messages for each in pops]
        assert [len(each) for each in popped] == [BATCH] * POPS
        for lot in popped:
            receipts = [message.receipt for message in lot]
            ack = pb.AckRequest(queue="windows", receipts=receipts)
            settled = stub.Ack(ack, timeout=100)
            assert (settled.done, len(settled.lost)) == (BATCH, 0)

"""gRPC calls without a server: the sequence of a call, its early ends, and the drain gate."""

from __future__ import annotations

import pytest

from tests.unit.stepped_call import RecordingNode, SteppedExchange, SteppedStream, services
from weft import errors
from weft.proto import weft_pb2 as pb
from weft.proto import wire
from weft.server.edges.call_log import CallLog
from weft.server.edges.drain_gate import DrainGate
from weft.server.edges.grpc_call import CallHeaders
from weft.server.edges.grpc_code import CODES, GrpcCode
from weft.server.edges.grpc_services import GrpcServices
from weft.server.security.access import Access, Grant, Principal

POP = pb.PopRequest(queue="q", wait_ms=100).SerializeToString()
LENT = wire.Lent(3, 9, 11, 0, 2, 5, 6, 1, 1000, 2000)
POPPED = wire.Popped([LENT])
FRAME = wire.encode(wire.Payload([b"a", b"b"]))


def exchange(services: GrpcServices, method: str, message: bytes) -> SteppedExchange:
    call = SteppedExchange(services, f"/weft.v1.{method}")
    call.start(message)
    return call


def test_an_answer_ends_the_call_with_its_trailing_metadata() -> None:
    node = RecordingNode()
    call = exchange(services(node), "Queue/Pop", POP)
    assert call.end is None
    node.submitted[0].answer(POPPED, [FRAME])
    assert call.end is not None
    assert (call.end.code, call.end.trailing) == (GrpcCode.OK, (call.trailing,))
    bodies = [message.body for message in pb.PopResponse.FromString(call.end.message).messages]
    assert bodies == [b"a", b"b"]


def test_a_failure_is_a_status_with_the_code() -> None:
    node = RecordingNode()
    call = exchange(services(node), "Queue/Pop", POP)
    node.submitted[0].answer(wire.Failure("QUEUE_FULL", "full", True), ())
    assert call.end is not None
    assert call.end.code is CODES["QUEUE_FULL"]
    assert call.end.details == "full"
    assert call.end.trailing[:2] == (("weft-code", "QUEUE_FULL"), ("weft-retriable", "true"))


def test_a_bug_is_an_internal_error_and_does_not_raise(caplog: pytest.LogCaptureFixture) -> None:
    node = RecordingNode()
    call = exchange(services(node), "Queue/Pop", POP)
    node.submitted[0].answer(POPPED, [b"not a payload"])
    assert call.end is not None
    assert call.end.code is GrpcCode.INTERNAL
    assert "a call failed" in caplog.text


def test_a_cancelled_call_withdraws_its_request_and_returns_a_late_answer() -> None:
    node = RecordingNode()
    call = exchange(services(node), "Queue/Pop", POP)
    call.cancel()
    assert node.cancelled == [0]
    node.submitted[0].answer(POPPED, [FRAME])
    assert call.end is None
    assert node.requests[1:] == [wire.Nack("q", [wire.Receipt(3, 9, 11)], counted=False)]


def test_a_response_that_did_not_leave_returns_its_messages() -> None:
    node = RecordingNode()
    call = exchange(services(node), "Queue/Pop", POP)
    node.submitted[0].answer(POPPED, [FRAME])
    call.cancel()
    call.cancel()
    assert node.requests[1:] == [wire.Nack("q", [wire.Receipt(3, 9, 11)], counted=False)]


def test_the_part_of_a_lost_lease_is_found_by_a_second_request() -> None:
    node = RecordingNode()
    receipts = [LENT_RECEIPT + bytes([0, index]) for index in range(2)]
    ack = pb.AckRequest(queue="q", receipts=receipts).SerializeToString()
    call = exchange(services(node), "Queue/Ack", ack)
    node.submitted[0].answer(wire.Settled(1, 0, [0]), ())
    assert call.end is None
    node.submitted[1].answer(wire.Settled(0, 1, [1]), ())
    assert call.end is not None
    assert pb.SettleResponse.FromString(call.end.message) == pb.SettleResponse(
        done=1, lost=[receipts[1]]
    )


LENT_RECEIPT = (3).to_bytes(2, "big") + (9).to_bytes(8, "big") + (11).to_bytes(8, "big")


# --- the drain gate ---------------------------------------------------------------------------


def drained() -> tuple[RecordingNode, GrpcServices, list[str]]:
    node, idle = RecordingNode(), list[str]()
    made = GrpcServices(node, DrainGate(lambda: idle.append("idle")), CallLog())
    return node, made, idle


def test_closing_ends_idle_waits_and_lets_work_finish() -> None:
    node, made, idle = drained()
    waits = exchange(made, "Queue/Pop", POP)
    works = exchange(made, "Queue/PurgeQueue", b"\x0a\x01q")
    made.gate.close()
    assert waits.end is not None
    assert waits.end.code is GrpcCode.UNAVAILABLE
    assert node.cancelled == [0]
    assert (works.end, idle) == (None, [])
    late = exchange(made, "Queue/PurgeQueue", b"")
    assert late.end is not None
    assert late.end.code is GrpcCode.UNAVAILABLE
    node.submitted[1].answer(wire.Done(3), ())
    assert works.end is not None
    assert works.end.code is GrpcCode.OK
    assert idle == ["idle"]


def test_cutting_fails_what_is_left() -> None:
    _, made, idle = drained()
    works = exchange(made, "Queue/PurgeQueue", b"")
    made.gate.close()
    made.gate.cut()
    assert works.end is not None
    assert "may or may not" in works.end.details
    assert idle == ["idle"]


def test_a_stream_ends_when_the_node_drains() -> None:
    node, made, idle = drained()
    stream = SteppedStream(made, "/weft.v1.Queue/Consume")
    stream.deliver(pb.ConsumeRequest(queue="q").SerializeToString())
    stream.start()
    made.gate.close()
    assert stream.end is not None
    assert stream.end.code is GrpcCode.UNAVAILABLE
    assert (node.cancelled, idle) == ([0], ["idle"])


def test_a_cancelled_stream_returns_what_flow_control_did_not_take() -> None:
    node, made, _ = drained()
    stream = SteppedStream(made, "/weft.v1.Queue/Consume")
    stream.takes = False
    stream.deliver(pb.ConsumeRequest(queue="q").SerializeToString())
    stream.start()
    node.submitted[0].answer(POPPED, [FRAME])
    stream.run()
    assert len(stream.to_client) == 1
    stream.cancel()
    assert node.requests[1:] == [wire.Nack("q", [wire.Receipt(3, 9, 11)], counted=False)]
    assert made.calls.ended == {("Consume", "CANCELLED"): 1}


def test_a_sent_message_stays_leased_when_the_stream_is_cancelled() -> None:
    node, made, _ = drained()
    stream = SteppedStream(made, "/weft.v1.Queue/Consume")
    stream.deliver(pb.ConsumeRequest(queue="q").SerializeToString())
    stream.start()
    node.submitted[0].answer(POPPED, [FRAME])
    stream.run()
    stream.cancel()
    assert [type(request) for request in node.requests] == [wire.Pop, wire.Pop]


# --- tokens -----------------------------------------------------------------------------------


class Tokens:
    def __init__(self) -> None:
        self.principals = {"t": Principal("one", (Grant.parse("consume:q"),))}

    def principal(self, token: str) -> Principal | None:
        return self.principals.get(token)


def test_headers_carry_the_token_and_the_id() -> None:
    found = CallHeaders.of(
        [("authorization", "Bearer t"), ("x-request-id", "r"), ("x-bin", b"b"), ("te", "trailers")]
    )
    assert found == CallHeaders("t", "r")


@pytest.mark.parametrize(
    ("token", "code"), [("", "UNAUTHENTICATED"), ("x", "UNAUTHENTICATED"), ("t", None)]
)
def test_every_call_is_checked(token: str, code: str | None) -> None:
    node = RecordingNode()
    call = SteppedExchange(services(node, Access(Tokens())), "/weft.v1.Queue/Pop", token)
    call.start(POP)
    if code is None:
        assert call.end is None
    else:
        assert call.end is not None
        assert call.end.code is GrpcCode.UNAUTHENTICATED
        assert not node.requests


def test_a_revoked_token_ends_a_stream_at_its_next_request() -> None:
    node, tokens = RecordingNode(), Tokens()
    stream = SteppedStream(services(node, Access(tokens)), "/weft.v1.Queue/Consume", "t")
    stream.deliver(pb.ConsumeRequest(queue="q").SerializeToString())
    stream.start()
    tokens.principals.clear()
    node.submitted[0].answer(POPPED, [FRAME])
    stream.run()
    assert stream.end is not None
    assert stream.end.code is GrpcCode.UNAUTHENTICATED
    assert errors.Unauthenticated.code in dict(stream.end.trailing).values()

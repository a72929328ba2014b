"""The gRPC methods Pop, Peek, PopBatches and ReadReserved: messages out, page by page.

A pop leases more messages than fit into the client's answer now and then: these go back to their
queue, uncounted, before the reply.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import limits
from weft.proto import pipelines, wire
from weft.proto import weft_pb2 as pb

from .delivery import Delivery, LotColumns, MessageColumns, single
from .grpc_method import Asked, parse
from .grpc_services import GrpcServices

POP_LIMIT_DEFAULT = 1
BATCHES_LIMIT_DEFAULT = 1000
#: The receive limit of a gRPC client with default options, in all languages. A client discards a
#: larger response unread, and its messages would stay leased without a consumer.
ANSWER_BYTES_MAX = 4 * limits.MIB
#: Time for a response to reach the client before the client's own deadline ends the call.
DEADLINE_MARGIN_MS = 100


def answer_bytes(max_bytes: int) -> int:
    """The bytes that the caller can receive in one response; 0 stands for gRPC's default."""
    if not max_bytes:
        return ANSWER_BYTES_MAX
    limits.check_range("max_bytes", max_bytes, limits.KIB, limits.GRPC_BYTES_MAX)
    return max_bytes


def wait_ms(wanted_ms: int, remaining_s: float | None) -> int:
    """A pop's wait, shortened so that an empty response arrives before the call's deadline."""
    if remaining_s is None or not 0 < wanted_ms <= limits.WAIT_MS_MAX:
        return wanted_ms
    return max(0, min(wanted_ms, int(remaining_s * 1000) - DEADLINE_MARGIN_MS))


def ask_pop(_: GrpcServices, message: bytes, remaining_s: float | None) -> Asked:
    return _pop(parse(message, pb.PopRequest), POP_LIMIT_DEFAULT, remaining_s)


def reply_pop(
    services: GrpcServices, asked: Asked, answer: wire.Popped, frames: Sequence[bytes]
) -> bytes:
    lent = answer.lent
    if len(lent) == 1 == lent[0].count:  # as mostly, with the default limit
        message = single(lent[0], frames[0], asked.kept)
        if message is not None:
            return message
    return _popped(services, asked, Delivery(lent, frames, MessageColumns))


def ask_pop_batches(_: GrpcServices, message: bytes, remaining_s: float | None) -> Asked:
    return _pop(parse(message, pb.PopBatchesRequest), BATCHES_LIMIT_DEFAULT, remaining_s)


def reply_pop_batches(
    services: GrpcServices, asked: Asked, answer: wire.Popped, frames: Sequence[bytes]
) -> bytes:
    return _popped(services, asked, Delivery(answer.lent, frames, LotColumns))


def ask_peek(_: GrpcServices, message: bytes, remaining_s: float | None) -> Asked:
    request = parse(message, pb.PeekRequest)
    limit = request.limit or POP_LIMIT_DEFAULT
    asked = wire.Peek(request.queue, limit, request.delayed)
    return Asked(asked, (), answer_bytes(request.max_bytes))


def ask_read_reserved(_: GrpcServices, message: bytes, remaining_s: float | None) -> Asked:
    request = parse(message, pb.ReadReservedRequest)
    asked = pipelines.ReadReserved(
        request.queue,
        request.slice.partition,
        [(hold.id, hold.messages) for hold in request.slice.holds],
        request.start,
        request.limit or limits.POP_COUNT_MAX,
    )
    return Asked(asked, (), answer_bytes(request.max_bytes))


def reply_shown(
    _: GrpcServices, asked: Asked, answer: wire.Peeked, frames: Sequence[bytes]
) -> bytes:
    """The reply of a peek and of a read of reserved messages: what does not fit stays there."""
    return Delivery(answer.lent, frames, MessageColumns).page(asked.kept)


def _pop(request: Any, limit_default: int, remaining_s: float | None) -> Asked:
    bytes_max = answer_bytes(request.max_bytes)
    wait = wait_ms(request.wait_ms, remaining_s)
    limit = request.limit or limit_default
    return Asked(wire.Pop(request.queue, limit, wait, request.lease_ms), (), bytes_max)


def _popped(services: GrpcServices, asked: Asked, delivery: Delivery) -> bytes:
    if (whole := delivery.whole(asked.kept)) is not None:
        return whole
    assert isinstance(asked.request, wire.Pop)
    try:
        page = delivery.page(asked.kept)
        delivery.page_sent()
    finally:
        services.give_back_receipts(asked.request.queue, delivery.unsent())
    return page

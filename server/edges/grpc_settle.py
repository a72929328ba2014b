"""The gRPC methods Ack, Nack and Extend, by message and by lot.

Of a lease with several messages perhaps only some are lost, and the engine names leases. Then a
second request names the messages one by one: the messages settled by the first request are reported
as settled again, and the rest is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from weft.proto import weft_pb2 as pb
from weft.proto import wire

from . import grpc_receipts
from .grpc_method import Asked, parse
from .grpc_receipts import Grouped, LeaseKey
from .grpc_services import GrpcServices
from .outstanding_messages import LeaseHolders


class SettleResult(NamedTuple):
    """The result for each message of a call."""

    done: int
    already: int
    lost: list[tuple[LeaseKey, int]]


class Settlement:
    """The state of an ack, nack or extend between its first request and its result."""

    __slots__ = ("_done", "_make", "_retried", "grouped")

    def __init__(
        self, grouped: Grouped, make: Callable[[list[wire.Receipt]], wire.AnyRequest]
    ) -> None:
        self.grouped = grouped
        self._make = make
        self._done = 0
        self._retried: Sequence[tuple[LeaseKey, int]] = ()

    def ask(self) -> Asked:
        return Asked(self._make(self.grouped.receipts()), (), self)

    def reply(self, services: GrpcServices, answer: wire.Settled) -> SettleResult | Asked:
        """The result, or the second request. Streams that deliver the messages learn of it."""
        count = self.grouped.count()
        if self._retried:
            lost = [self._retried[position] for position in answer.lost]
            done = min(self._done + answer.done, count - len(lost))
        else:
            done, lost = answer.done, self.grouped.messages(answer.lost) if answer.lost else []
            if len(lost) > len(answer.lost):
                self._done, self._retried = done, lost
                single = [wire.Receipt(*lease, [(index, 1)]) for lease, index in lost]
                return Asked(self._make(single), (), self)
        if services.holders:
            self._tell(services.holders, lost)
        return SettleResult(done, count - len(lost) - done, lost)

    def _tell(self, holders: LeaseHolders, lost: list[tuple[LeaseKey, int]]) -> None:
        """Updates the streams that have delivered the messages."""
        request = self._make([])
        if isinstance(request, wire.Extend):
            holders.extend(self.grouped.leases, request)
            lost_leases: dict[LeaseKey, list[int]] = {}
            for lease, index in lost:
                lost_leases.setdefault(lease, []).append(index)
            holders.settle(lost_leases)
        else:
            holders.settle(self.grouped.leases)


# --- by message -------------------------------------------------------------------------------


def ask_ack(_: GrpcServices, message: bytes, remaining_s: float | None) -> Asked:
    request = parse(message, pb.AckRequest)
    receipts = request.receipts
    if len(receipts) == 1 and (receipt := grpc_receipts.of_message(receipts[0])) is not None:
        return Asked(wire.Ack(request.queue, [receipt]))
    return ack_of(Grouped.of(receipts), request.queue).ask()


def ask_nack(_: GrpcServices, message: bytes, remaining_s: float | None) -> Asked:
    request = parse(message, pb.NackRequest)
    return nack_of(Grouped.of(request.receipts), request.queue, request).ask()


def ask_extend(_: GrpcServices, message: bytes, remaining_s: float | None) -> Asked:
    request = parse(message, pb.ExtendRequest)
    return extend_of(Grouped.of(request.receipts), request.queue, request.lease_ms).ask()


def reply_settled(
    services: GrpcServices, asked: Asked, answer: wire.Settled, frames: Sequence[bytes]
) -> bytes | Asked:
    if asked.kept is None:
        assert isinstance(asked.request, wire.Ack)
        return _reply_acked(services, asked.request.receipts[0], answer)
    settlement: Settlement = asked.kept
    result = settlement.reply(services, answer)
    if isinstance(result, Asked):
        return result
    malformed = settlement.grouped.malformed
    if not result.lost and not malformed:
        return _settled(result.done, result.already)
    lost = [grpc_receipts.pack(*message) for message in result.lost]
    return pb.SettleResponse(
        done=result.done, already=result.already, lost=lost + malformed
    ).SerializeToString()


def _reply_acked(services: GrpcServices, receipt: wire.Receipt, answer: wire.Settled) -> bytes:
    """The result of an ack of one message."""
    lease, index = (receipt.partition, receipt.lsn, receipt.nonce), receipt.ranges[0][0]
    if services.holders:
        services.holders.settle({lease: [index]})
    if not answer.lost:
        return _settled(answer.done, 1 - answer.done)
    return pb.SettleResponse(lost=[grpc_receipts.pack(lease, index)]).SerializeToString()


@lru_cache(maxsize=1024)
def _settled(done: int, already: int) -> bytes:
    return pb.SettleResponse(done=done, already=already).SerializeToString()


# --- by lot -----------------------------------------------------------------------------------


def ask_ack_batches(_: GrpcServices, message: bytes, remaining_s: float | None) -> Asked:
    request = parse(message, pb.AckBatchesRequest)
    return ack_of(Grouped.of((), request.lots), request.queue).ask()


def ask_nack_batches(_: GrpcServices, message: bytes, remaining_s: float | None) -> Asked:
    request = parse(message, pb.NackBatchesRequest)
    return nack_of(Grouped.of((), request.lots), request.queue, request).ask()


def ask_extend_batches(_: GrpcServices, message: bytes, remaining_s: float | None) -> Asked:
    request = parse(message, pb.ExtendBatchesRequest)
    return extend_of(Grouped.of((), request.lots), request.queue, request.lease_ms).ask()


def reply_settled_batches(
    services: GrpcServices, asked: Asked, answer: wire.Settled, frames: Sequence[bytes]
) -> bytes | Asked:
    settlement: Settlement = asked.kept
    result = settlement.reply(services, answer)
    if isinstance(result, Asked):
        return result
    grouped = settlement.grouped
    lost = grouped.parts(result.lost) if result.lost else []
    return pb.SettleBatchesResponse(
        done=result.done, already=result.already, lost=[*lost, *grouped.malformed_lots]
    ).SerializeToString()


# --- requests ---------------------------------------------------------------------------------


def ack_of(grouped: Grouped, queue: str) -> Settlement:
    return Settlement(grouped, lambda receipts: wire.Ack(queue, receipts))


def nack_of(grouped: Grouped, queue: str, request: Any) -> Settlement:
    """`request` has the fields `delay_ms`, `reason` and `final`."""
    delay_ms, reason, final = request.delay_ms, request.reason, request.final
    return Settlement(
        grouped, lambda receipts: wire.Nack(queue, receipts, delay_ms, reason, final=final)
    )


def extend_of(grouped: Grouped, queue: str, lease_ms: int, *, handed: bool = False) -> Settlement:
    return Settlement(grouped, lambda receipts: wire.Extend(queue, receipts, lease_ms, handed))

"""A minimal client: one DEALER socket, one call at a time, no implicit retries.

Tests that kill nodes need to know exactly which requests were sent and answered, so they use the
wire protocol directly. A call that is not answered in time raises `Silence`: its outcome is
unknown.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self

import zmq

from weft.limits import BATCH_COUNT_MAX
from weft.proto import wire
from weft.proto.settings import Settings

#: Interval of the checks whether the node lives.
_POLL_MS: Final = 500


class Silence(Exception):
    """No answer came in time: whether the call was executed is unknown."""


class Refused(Exception):
    """The node answered with a failure."""

    def __init__(self, failure: wire.Failure) -> None:
        super().__init__(f"{failure.code}: {failure.message}")
        self.code = failure.code
        self.retriable = failure.retriable


class Loan(NamedTuple):
    """One lent range with its bodies."""

    lent: wire.Lent
    bodies: list[bytes]

    def receipt(self, indexes: Sequence[int] | None = None) -> wire.Receipt:
        """The receipt of these messages, by index in their batch; None means all."""
        ranges = [] if indexes is None else [(index, 1) for index in indexes]
        return wire.Receipt(self.lent.partition, self.lent.lsn, self.lent.nonce, ranges)


class WireClient:
    def __init__(
        self,
        address: str,
        *,
        timeout_ms: int = 60_000,
        receive_max: int = 1000,
        token: str = "",
        lives: Callable[[], bool] = lambda: True,
    ) -> None:
        """`lives` returns whether the node runs: the client does not wait for a dead node."""
        self._lives = lives
        self._timeout_ms = timeout_ms
        self._token = token
        self._rids = itertools.count(1)
        self._context = zmq.Context(io_threads=1)
        self.socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RCVHWM, receive_max)
        self.socket.connect(f"tcp://{address}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close(linger=0)
        self._context.term()

    # --- calls ------------------------------------------------------------------------------

    def send(self, request: wire.AnyRequest, *payload: bytes) -> int:
        """Send a call and return its number, without waiting for the answer."""
        rid = next(self._rids)
        self.socket.send_multipart(
            [wire.encode(wire.Call(wire.WIRE_VERSION, rid, request, self._token)), *payload]
        )
        return rid

    def receive(self, timeout_ms: int | None = None) -> tuple[int, wire.AnyAnswer, list[bytes]]:
        """The next answer, for any call."""
        left_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        while not self.socket.poll(min(left_ms, _POLL_MS)):
            left_ms -= _POLL_MS
            if left_ms <= 0 or not (self._lives() or self.socket.poll(_POLL_MS)):
                raise Silence
        first, *frames = self.socket.recv_multipart()
        reply = wire.decode_reply(first)
        return reply.rid, reply.answer, frames

    def ask(
        self, request: wire.AnyRequest, *payload: bytes, timeout_ms: int | None = None
    ) -> tuple[wire.AnyAnswer, list[bytes]]:
        """One call and its answer; answers to earlier calls are dropped."""
        patience_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        deadline = time.monotonic() + patience_ms / 1000
        wanted = self.send(request, *payload)
        while True:
            left_ms = max(0, round((deadline - time.monotonic()) * 1000))
            rid, answer, frames = self.receive(left_ms)
            if rid != wanted:
                continue
            if isinstance(answer, wire.Failure):
                raise Refused(answer)
            return answer, frames

    # --- verbs ------------------------------------------------------------------------------

    def create(self, queue: str, settings: Settings | None = None) -> None:
        self.ask(wire.CreateQueue(queue, settings or Settings()))

    def push(
        self, queue: str, producer: int, batch: int, bodies: list[bytes], *, delay_ms: int = 0
    ) -> wire.Pushed:
        request = wire.Push(queue, producer, batch, len(bodies), delay_ms)
        answer, _ = self.ask(request, wire.encode(wire.Payload(bodies)))
        assert isinstance(answer, wire.Pushed)
        return answer

    def pop(self, queue: str, limit: int, *, wait_ms: int = 0, lease_ms: int = 0) -> list[Loan]:
        answer, frames = self.ask(wire.Pop(queue, limit, wait_ms, lease_ms))
        assert isinstance(answer, wire.Popped)
        return [
            Loan(lent, wire.decode_payload(frame).bodies)
            for lent, frame in zip(answer.lent, frames, strict=True)
        ]

    def ack(self, queue: str, receipts: list[wire.Receipt]) -> wire.Settled:
        answer, _ = self.ask(wire.Ack(queue, receipts))
        assert isinstance(answer, wire.Settled)
        return answer

    def nack(self, queue: str, receipts: list[wire.Receipt], *, delay_ms: int = 0) -> wire.Settled:
        answer, _ = self.ask(wire.Nack(queue, receipts, delay_ms))
        assert isinstance(answer, wire.Settled)
        return answer

    def purge(self, queue: str) -> int:
        answer, _ = self.ask(wire.PurgeQueue(queue))
        assert isinstance(answer, wire.Done)
        return answer.count

    def describe(self, queue: str) -> wire.QueueInfo:
        answer, _ = self.ask(wire.DescribeQueue(queue))
        assert isinstance(answer, wire.Queues)
        return answer.queues[0]

    def status(self) -> wire.StatusInfo:
        answer, _ = self.ask(wire.Status())
        assert isinstance(answer, wire.StatusInfo)
        return answer

    def drain(self, queue: str) -> list[bytes]:
        """Pop and ack all ready messages; return the bodies, in order of delivery."""
        bodies: list[bytes] = []
        while loans := self.pop(queue, BATCH_COUNT_MAX, lease_ms=60_000):
            settled = self.ack(queue, [loan.receipt() for loan in loans])
            assert not settled.lost, settled
            bodies += [body for loan in loans for body in loan.bodies]
        return bodies

"""How the gRPC edge stops: calls in flight finish, others are told to retry."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.contract.served import Served, consume, eventually, refused, serve
from weft import errors
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc, wire
from weft.server.config import Config
from weft.server.edges.grpc_edge import GrpcEdge
from weft.server.node.node import Node
from weft.server.node.node_api import OnAnswer
from weft.server.security.caller import ANONYMOUS, Caller


def test_stopping_ends_waits_and_refuses_new_calls(own: Served) -> None:
    name = own.make()
    waiting = own.queue.Pop.future(pb.PopRequest(queue=name, wait_ms=30_000))
    stream = consume(own, name)
    full = own.make()
    own.push(full, b"1", b"2")
    full_stream = consume(own, full, prefetch=1)
    next(full_stream)  # type: ignore[call-overload]
    eventually(lambda: own.describe(name).waiting_pops == 2)
    before = time.monotonic()
    own.edge.stop(100)
    assert time.monotonic() - before < 50, "it waited for the grace to be over"
    refused(lambda: waiting.result(), errors.ShuttingDown)
    refused(lambda: next(stream), errors.ShuttingDown)  # type: ignore[call-overload]
    refused(lambda: next(full_stream), errors.ShuttingDown)  # type: ignore[call-overload]


class Hold:
    """A node that holds its answers back until released."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.let_go = threading.Event()
        self.answered = threading.Event()
        self.cancelled = threading.Event()

    def submit(
        self,
        request: wire.AnyRequest,
        payload: Sequence[bytes],
        on_answer: OnAnswer,
        who: Caller = ANONYMOUS,
    ) -> int:
        def late(answer: wire.AnyAnswer, frames: Sequence[bytes]) -> None:
            def wait() -> None:
                self.let_go.wait()
                on_answer(answer, frames)

            threading.Thread(target=wait, daemon=True).start()
            self.answered.set()

        return self._node.submit(request, payload, late)

    def cancel(self, ticket: int) -> None:
        self._node.cancel(ticket)
        self.cancelled.set()


class Held:
    """A second edge on the same node, with answers held back."""

    def __init__(self, own: Served) -> None:
        self.hold = Hold(own.node)
        self.edge = GrpcEdge(Config(listen="127.0.0.1:0"), self.hold)
        self.channel = grpc.insecure_channel(str(self.edge.start()))
        self.queue = weft_pb2_grpc.QueueStub(self.channel)  # type: ignore[no-untyped-call]
        self.health = health_pb2_grpc.HealthStub(self.channel)

    def pushing(self, name: str) -> Any:
        """A push that the node has executed, and not yet answered."""
        push = pb.PushRequest(queue=name, messages=[pb.OutMessage(body=b"x")])
        call = self.queue.Push.future(push)
        assert self.hold.answered.wait(100)
        return call

    def close(self) -> None:
        self.hold.let_go.set()
        self.channel.close()
        self.edge.stop(1)


@pytest.fixture
def held(own: Served) -> Iterator[Held]:
    held = Held(own)
    yield held
    held.close()


def test_what_is_under_way_is_finished_and_new_calls_are_refused(own: Served, held: Held) -> None:
    name = own.make()
    pushing = held.pushing(name)
    stopping = threading.Thread(target=held.edge.stop, args=(200,))
    stopping.start()
    check = health_pb2.HealthCheckRequest(service="weft.v1.Queue")
    down = health_pb2.HealthCheckResponse.NOT_SERVING
    eventually(lambda: bool(held.health.Check(check).status == down))
    refused(lambda: held.queue.Pop(pb.PopRequest(queue=name)), errors.ShuttingDown, "stopping")
    assert not pushing.done()
    held.hold.let_go.set()
    assert len(pushing.result(timeout=100).ids) == 1
    stopping.join(100)
    assert not stopping.is_alive()


def test_what_takes_longer_than_the_grace_is_told_so(own: Served, held: Held) -> None:
    pushing = held.pushing(own.make())
    held.edge.stop(0.2)
    refused(lambda: pushing.result(), errors.ShuttingDown, "may or may not")


def test_an_answer_after_the_cancel_is_given_back(own: Served, held: Held) -> None:
    name = own.make()
    own.push(name, b"x")
    popping = held.queue.Pop.future(pb.PopRequest(queue=name))
    assert held.hold.answered.wait(100)
    assert own.describe(name).leased == 1
    popping.cancel()
    assert held.hold.cancelled.wait(100)  # the edge finds nothing to cancel at the node
    held.hold.let_go.set()
    eventually(lambda: own.describe(name).ready == 1)
    (message,) = own.pop(name)
    assert message.deliveries == 1


def test_an_answer_made_in_the_round_of_the_cancel_reaches_its_caller(own: Served) -> None:
    """The caller knows the queue, and returns messages lent by this node or another one."""
    name = own.make()
    own.push(name, b"x")
    answers: list[wire.AnyAnswer] = []
    answered = threading.Event()

    def on_answer(answer: wire.AnyAnswer, _: Sequence[bytes]) -> None:
        answers.append(answer)
        answered.set()

    def both() -> None:
        """In the node's thread: the next round takes the two together."""
        own.node.cancel(own.node.submit(wire.Pop(name, 1), (), on_answer))

    assert own.node.look(both)
    assert answered.wait(100)
    (answer,) = answers
    assert isinstance(answer, wire.Popped)
    assert len(answer.lent) == 1


def test_more_calls_than_allowed_are_refused(tmp_path: Path) -> None:
    few = serve(tmp_path, calls_max=2)
    try:
        name = few.make()
        waits = [few.queue.Pop.future(pb.PopRequest(queue=name, wait_ms=30_000)) for _ in range(3)]
        eventually(lambda: any(wait.done() for wait in waits))
        over = [wait.code() for wait in waits if wait.done()]
        assert over == [grpc.StatusCode.RESOURCE_EXHAUSTED]
        for wait in waits:
            wait.cancel()
    finally:
        few.close()

"""The protocol of call and reply with plain gRPC clients: headers alone, no code of Weft."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import grpc
import pytest

import weft
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc
from weft.testing import Cluster, cluster

pytestmark = pytest.mark.process
LONG_MS = 60_000
_names = count()


class PlainClient:
    """A client that has the stubs and nothing else."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address)
        self.stub = weft_pb2_grpc.QueueStub(self.channel)  # type: ignore[no-untyped-call]

    def make(self, expire_idle_ms: int = 0) -> str:
        name = f"plain-{next(_names)}"
        settings = pb.Settings(expire_idle_ms=expire_idle_ms)
        self.stub.CreateQueue(pb.CreateQueueRequest(queue=name, settings=settings))
        return name

    def push(self, queue: str, body: bytes, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        message = pb.OutMessage(body=body, headers=named)
        self.stub.Push(pb.PushRequest(queue=queue, messages=[message]))

    def pop(self, queue: str) -> pb.Message:
        answer: pb.PopResponse = self.stub.Pop(pb.PopRequest(queue=queue, wait_ms=LONG_MS))
        assert len(answer.messages) == 1
        return answer.messages[0]

    def ack(self, queue: str, message: pb.Message) -> None:
        self.stub.Ack(pb.AckRequest(queue=queue, receipts=[message.receipt]))


@pytest.fixture(scope="module", params=["native", "grpcio"])
def served(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with cluster(grpc_server=request.param) as nodes:
        yield nodes


@pytest.fixture
def plain(served: Cluster) -> Iterator[PlainClient]:
    client = PlainClient(served.servers[0])
    yield client
    client.channel.close()


@pytest.fixture
def client(served: Cluster) -> Iterator[weft.Client]:
    with weft.connect(served.servers) as client:
        yield client


def popped(client: weft.Client, queue: str) -> weft.Message:
    message = client.queue(queue).pop(wait_ms=LONG_MS)
    assert message is not None
    return message


def test_a_grpc_client_answers_a_python_client(plain: PlainClient, client: weft.Client) -> None:
    name = plain.make()
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(client.queue(name).call, b"question", timeout_ms=LONG_MS)
        question = plain.pop(name)
        assert set(question.headers) == {"weft-reply-to", "weft-call-id", "weft-call-timeout-ms"}
        assert 0 < int(question.headers["weft-call-timeout-ms"]) <= LONG_MS + 1
        call_id = question.headers["weft-call-id"]
        plain.push(question.headers["weft-reply-to"], b"answer", weft_call_id=call_id, status="ok")
        plain.ack(name, question)
        assert asked.result() == weft.CallAnswer(b"answer", {"status": "ok"})


def test_a_grpc_client_calls_a_python_client(plain: PlainClient, client: weft.Client) -> None:
    name, reply_to = plain.make(), plain.make(expire_idle_ms=60_000)
    plain.push(
        name, b"question", weft_reply_to=reply_to, weft_call_id="call-1",
        weft_call_timeout_ms="5000",
    )  # fmt: skip
    message = popped(client, name)
    assert message.reply_to == reply_to
    assert message.reply_until == pytest.approx(message.pushed_at + 5)
    message.reply(b"answer", headers={"status": "ok"}, ack=True)
    answer = plain.pop(reply_to)
    assert answer.body == b"answer"
    assert dict(answer.headers) == {"weft-call-id": "call-1", "status": "ok"}
    plain.ack(reply_to, answer)


def test_a_caller_may_leave_out_all_but_the_reply_queue(
    plain: PlainClient, client: weft.Client
) -> None:
    name, reply_to = plain.make(), plain.make()
    plain.push(name, b"q", weft_reply_to=reply_to)
    message = popped(client, name)
    assert message.reply_until is None
    message.reply(b"answer", ack=True)
    answer = plain.pop(reply_to)
    assert (answer.body, dict(answer.headers)) == (b"answer", {})


@pytest.mark.parametrize("timeout_ms", ["", "soon", "-1", "1.5", "²", "9" * 5000])
def test_a_malformed_timeout_of_another_client_is_no_timeout(
    plain: PlainClient, client: weft.Client, timeout_ms: str
) -> None:
    name = plain.make()
    plain.push(name, b"q", weft_reply_to="x", weft_call_timeout_ms=timeout_ms)
    message = popped(client, name)
    assert message.reply_until is None
    message.ack()


@pytest.mark.parametrize("reply_to", ["no such name!", "", "reply.gone"])
def test_a_reply_to_a_queue_that_does_not_exist(
    plain: PlainClient, client: weft.Client, reply_to: str
) -> None:
    name = plain.make()
    plain.push(name, b"q", weft_reply_to=reply_to)
    message = popped(client, name)
    for ack in (False, True):
        with pytest.raises(weft.CallerGone):
            message.reply(b"answer", ack=ack)
    message.ack()


def test_a_plain_push_to_a_reply_queue_that_is_gone(plain: PlainClient) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        plain.push("reply.gone", b"x")
    assert isinstance(refused.value, grpc.Call)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    assert "reply.gone" in (refused.value.details() or "")

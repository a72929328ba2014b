"""call and reply against real nodes: both clients, workers, threads, kills and the command line."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest

import weft
from tests.contract.served import eventually
from weft.proto import call_headers
from weft.server.security import token_file
from weft.testing import Cluster, cluster

pytestmark = pytest.mark.process
#: Ends a hang; no test waits for all of it.
LONG_MS = 100_000
#: A test that waits for a timeout waits for this one.
SHORT_MS = 300
_names = count()

#: Answers questions with their bodies in capitals; with "hang" it stops for ever at the first one.
RESPONDER = """
import sys, time, weft
def answer(message):
    if sys.argv[3] == "hang":
        print("took", flush=True)
        time.sleep(1000)
    message.reply(message.body.upper())
with weft.connect(sys.argv[1].split(",")) as client:
    print("ready", flush=True)
    client.queue(sys.argv[2]).work(answer)
"""


@pytest.fixture
def client(node: Cluster) -> Iterator[weft.Client]:
    with weft.connect(node.servers) as client:
        yield client


def made(client: weft.Client, **settings: int) -> weft.Queue:
    name = f"ask-{next(_names)}"
    client.create_queue(name, **settings)  # type: ignore[arg-type]
    return client.queue(name)


@contextmanager
def responding(
    nodes: Cluster, queue: str, answer: Callable[[weft.Message], object]
) -> Iterator[None]:
    """A worker of another client, in a thread."""
    with weft.connect(nodes.servers) as client:
        worker = client.queue(queue).worker(answer)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            yield
        finally:
            worker.stop()
            thread.join()


def upper(message: weft.Message) -> None:
    message.reply(message.body.upper(), headers={"by": "upper"})


def reply_queues(client: weft.Client) -> list[str]:
    return [each.name for each in client.list_queues("reply.")]


def test_an_answer_comes_back_with_its_headers(node: Cluster, client: weft.Client) -> None:
    queue = made(client)
    seen: list[weft.Message] = []

    def answer(message: weft.Message) -> None:
        seen.append(message)
        upper(message)

    with responding(node, queue.name, answer):
        found = queue.call(b"question", headers={"a": "b"}, key="k", timeout_ms=LONG_MS)
    assert found == weft.CallAnswer(b"QUESTION", {"by": "upper"})
    (message,) = seen
    assert message.headers["a"] == "b"
    assert message.key == "k"
    assert message.reply_to in reply_queues(client)
    assert message.reply_until == pytest.approx(message.pushed_at + LONG_MS / 1000)
    eventually(lambda: queue.stats().acked == 1)


def test_one_reply_queue_for_all_calls_of_all_threads(node: Cluster, client: weft.Client) -> None:
    queue = made(client)
    with responding(node, queue.name, upper), ThreadPoolExecutor(16) as threads:
        bodies = [b"n%d" % number for number in range(400)]
        answers = list(threads.map(lambda body: queue.call(body, timeout_ms=LONG_MS), bodies))
    assert [answer.body for answer in answers] == [body.upper() for body in bodies]
    assert len(reply_queues(client)) == 1
    (name,) = reply_queues(client)
    eventually(lambda: client.queue(name).stats().acked == 400)


def test_asyncio_calls_in_flight_at_once(node: Cluster, client: weft.Client) -> None:
    queue = made(client)

    async def main() -> None:
        async with weft.aio.connect(node.servers) as caller, weft.aio.connect(node.servers) as far:

            async def answer(message: weft.aio.Message) -> None:
                await message.reply(message.body.upper(), ack=True)

            worker = far.queue(queue.name).worker(answer, concurrency=100)
            working = asyncio.ensure_future(worker.run())
            ask = caller.queue(queue.name)
            bodies = [b"n%d" % number for number in range(300)]
            answers = await asyncio.gather(*(ask.call(b, timeout_ms=LONG_MS) for b in bodies))
            assert [each.body for each in answers] == [body.upper() for body in bodies]
            assert len(reply_queues(client)) == 1
            worker.stop()
            stats = await working
            assert (stats.started, stats.succeeded) == (300, 300)
        assert reply_queues(client) == []

    asyncio.run(main())
    assert queue.stats().ready == queue.stats().leased == 0


def test_a_call_without_an_answer_times_out_and_a_late_answer_is_dropped(
    node: Cluster, client: weft.Client
) -> None:
    queue = made(client)
    with pytest.raises(weft.CallTimedOut, match=f"within {SHORT_MS} ms") as caught:
        queue.call(b"late", timeout_ms=SHORT_MS)
    assert caught.value.code == "CALL_TIMED_OUT"
    assert caught.value.retriable
    assert isinstance(caught.value, weft.DeadlineExceeded)
    with responding(node, queue.name, upper):
        assert queue.call(b"in time", timeout_ms=LONG_MS).body == b"IN TIME"
        (name,) = reply_queues(client)
        eventually(lambda: client.queue(name).stats().acked == 2)
    with weft.connect(node.servers) as fresh, pytest.raises(weft.QueueNotFound):
        fresh.queue("nowhere").call(b"x")


def test_reply_and_ack_happen_together_or_not_at_all(node: Cluster, client: weft.Client) -> None:
    queue = made(client, lease_ms=1_000)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(queue.call, b"q", timeout_ms=LONG_MS)
        message = queue.pop(wait_ms=LONG_MS)
        assert message is not None
        again = queue.pop(wait_ms=LONG_MS)  # the lease of the first delivery has ended
        assert again is not None
        with pytest.raises(weft.LeaseLost):
            message.reply(b"from the first", ack=True)
        again.extend(60_000)
        again.reply(b"from the second", ack=True)
        assert asked.result().body == b"from the second"
        with pytest.raises(weft.AlreadySettled):
            again.reply(b"twice", ack=True)
        with pytest.raises(weft.AlreadySettled):
            again.ack()
    assert queue.stats().acked == 1


def test_two_answers_to_one_call_the_first_counts(node: Cluster, client: weft.Client) -> None:
    queue = made(client)

    def twice(message: weft.Message) -> None:
        message.reply(b"one")
        message.reply(b"two")

    with responding(node, queue.name, twice):
        assert queue.call(b"q", timeout_ms=LONG_MS).body in (b"one", b"two")
        assert queue.call(b"q", timeout_ms=LONG_MS).body in (b"one", b"two")
        (name,) = reply_queues(client)
        eventually(lambda: client.queue(name).stats().acked == 4)


def test_a_message_without_a_caller_has_no_reply(client: weft.Client) -> None:
    queue = made(client)
    queue.push(b"plain")
    message = queue.pop(wait_ms=LONG_MS)
    assert message is not None
    assert (message.reply_to, message.reply_until) == (None, None)
    with pytest.raises(weft.UsageError, match="is not a question: it has no header weft-reply-to"):
        message.reply(b"x")
    message.ack()


@pytest.mark.parametrize("ack", [False, True])
def test_a_reply_to_a_caller_that_is_gone(node: Cluster, client: weft.Client, ack: bool) -> None:
    queue = made(client)
    with weft.connect(node.servers) as short, pytest.raises(weft.CallTimedOut):
        short.queue(queue.name).call(b"q", timeout_ms=SHORT_MS)
    assert reply_queues(client) == []  # closing has deleted it
    message = queue.pop(wait_ms=LONG_MS)
    assert message is not None
    with pytest.raises(weft.CallerGone, match=f"reply queue {message.reply_to} is gone") as caught:
        message.reply(b"x", ack=ack)
    assert (caught.value.code, caught.value.retriable) == ("CALLER_GONE", False)
    assert not message.settled
    message.ack()


def test_a_call_whose_reply_queue_goes_away(client: weft.Client) -> None:
    queue = made(client)
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(queue.call, b"q", timeout_ms=LONG_MS)
        message = queue.pop(wait_ms=LONG_MS)
        assert message is not None
        assert message.reply_to is not None
        client.delete_queue(message.reply_to)
        with pytest.raises(weft.ReplyQueueLost, match="call again") as caught:
            asked.result()
        assert (caught.value.code, caught.value.retriable) == ("REPLY_QUEUE_LOST", True)
        message.ack()
        again = threads.submit(queue.call, b"q", timeout_ms=LONG_MS)
        next_one = queue.pop(wait_ms=LONG_MS)
        assert next_one is not None
        assert next_one.reply_to != message.reply_to
        next_one.reply(b"answer", ack=True)
        assert again.result().body == b"answer"


def test_closing_ends_the_waiting_calls(node: Cluster, client: weft.Client) -> None:
    queue = made(client)
    with ThreadPoolExecutor(1) as threads:
        caller = weft.connect(node.servers)
        asked = threads.submit(caller.queue(queue.name).call, b"q", timeout_ms=LONG_MS)
        assert queue.pop(wait_ms=LONG_MS) is not None
        caller.close()
        with pytest.raises(weft.UsageError, match="closed while a call waited"):
            asked.result()
        with pytest.raises(weft.UsageError, match="closed"):
            caller.queue(queue.name).call(b"q")
    assert reply_queues(client) == []


def test_bad_arguments_store_nothing(client: weft.Client) -> None:
    queue = made(client)
    bad: list[tuple[str, Callable[[], object]]] = [
        ("body", lambda: queue.call("text")),  # type: ignore[arg-type]
        ("headers", lambda: queue.call(b"", headers={call_headers.REPLY_TO: "x"})),
        ("headers", lambda: queue.call(b"", headers=7)),  # type: ignore[arg-type]
        ("timeout_ms", lambda: queue.call(b"", timeout_ms=0)),
        ("priority", lambda: queue.call(b"", priority=10)),
        ("group", lambda: queue.call(b"", group="")),
        ("key", lambda: queue.call(b"", key="k" * 2000)),
    ]
    for name, call in bad:
        with pytest.raises(weft.InvalidArgument, match=name):
            call()
    with pytest.raises(weft.TooLarge):
        queue.call(bytes(5 * 1024 * 1024))
    assert queue.stats().ready == 0
    assert reply_queues(client) == []


def test_a_reply_queue_expires_after_its_client_was_killed(
    node: Cluster, client: weft.Client
) -> None:
    queue = made(client)
    code = "import sys, weft; weft.connect(sys.argv[1]).queue(sys.argv[2]).call(b'q')"
    program = subprocess.Popen([sys.executable, "-c", code, node.servers[0], queue.name])
    try:
        assert queue.pop(wait_ms=LONG_MS) is not None
    finally:
        program.kill()
        program.wait()
    (name,) = reply_queues(client)
    settings = client.queue(name).stats().settings
    assert settings.expire_idle_ms == 60_000
    client.update_queue(name, expire_idle_ms=5_000)
    eventually(lambda: reply_queues(client) == [])


@contextmanager
def started(nodes: Cluster, queue: str, kind: str) -> Iterator[subprocess.Popen[str]]:
    words = [sys.executable, "-c", RESPONDER, ",".join(nodes.servers), queue, kind]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert line_of(program) == "ready\n"
            yield program
        finally:
            program.kill()


def line_of(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline()


def test_a_killed_responder_is_replaced_by_another(node: Cluster, client: weft.Client) -> None:
    queue = made(client, lease_ms=1_000)
    with ThreadPoolExecutor(1) as threads, started(node, queue.name, "hang") as first:
        asked = threads.submit(queue.call, b"question", timeout_ms=LONG_MS)
        assert line_of(first) == "took\n"
        first.kill()
        with started(node, queue.name, "answer"):
            assert asked.result().body == b"QUESTION"
    with pytest.raises(weft.CallTimedOut):  # now without a responder
        queue.call(b"question", timeout_ms=SHORT_MS)


def test_calls_go_on_over_a_failover() -> None:
    with cluster(nodes=3) as nodes, nodes.client() as client:
        nodes.settled()
        client.create_queue("ask")
        answered = 0
        with responding(nodes, "ask", upper):
            for number in range(60):
                if number == 20:
                    nodes.kill(1)
                if number == 40:
                    nodes.start(1)
                body = b"n%d" % number
                assert client.queue("ask").call(body, timeout_ms=LONG_MS).body == body.upper()
                answered += 1
        assert answered == 60


def test_a_worker_that_answers_too_late_gets_the_error(node: Cluster, client: weft.Client) -> None:
    """The documented handler: the work is done, and the answer reaches no caller."""
    queue = made(client)
    outcome: list[str] = []

    def answer(message: weft.Message) -> None:
        try:
            message.reply(b"x")
        except weft.CallerGone:
            outcome.append("gone")

    with weft.connect(node.servers) as short, pytest.raises(weft.CallTimedOut):
        short.queue(queue.name).call(b"q", timeout_ms=SHORT_MS)
    with responding(node, queue.name, answer):
        eventually(lambda: queue.stats().acked == 1)
    assert outcome == ["gone"]


def test_reply_until_lets_a_responder_skip_stale_questions(client: weft.Client) -> None:
    queue = made(client)
    began = time.time()
    with pytest.raises(weft.CallTimedOut):
        queue.call(b"q", timeout_ms=SHORT_MS)
    ended = time.time()
    message = queue.pop(wait_ms=LONG_MS)
    assert message is not None
    assert message.reply_until is not None
    # The time limit counts from the push at the node, in whole milliseconds.
    pushed = message.reply_until - SHORT_MS / 1000
    assert began - 0.001 <= pushed <= ended + 0.001
    message.ack()


def test_the_grants_of_callers_and_responders(tmp_path: Path) -> None:
    """As docs/how-to/request-and-reply.md has them, and no more."""
    file = tmp_path / "tokens.json"

    def token(name: str, *grants: str) -> str:
        return token_file.create(file, name, list(grants), 0)[1]

    owner = token("owner", "admin:*")
    caller = token("caller", "push:rates", "admin:reply.*", "consume:reply.*")
    responder = token("responder", "consume:rates", "push:reply.*")
    pusher = token("pusher", "push:rates")
    with cluster(durability="os", tokens=str(file)) as nodes:
        with weft.connect(nodes.servers, token=owner) as client:
            client.create_queue("rates")
        with (
            weft.connect(nodes.servers, token=caller) as asking,
            weft.connect(nodes.servers, token=responder) as answering,
            ThreadPoolExecutor(1) as threads,
        ):
            for ack in (False, True):
                asked = threads.submit(asking.queue("rates").call, b"q", timeout_ms=LONG_MS)
                message = answering.queue("rates").pop(wait_ms=LONG_MS)
                assert message is not None
                message.reply(b"answer", ack=ack)
                assert asked.result().body == b"answer"
        with (
            weft.connect(nodes.servers, token=pusher) as client,
            pytest.raises(weft.PermissionDenied, match=r"pusher may not .* 'reply\.[0-9a-f]{32}'"),
        ):
            client.queue("rates").call(b"q")

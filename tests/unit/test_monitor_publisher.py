"""The monitor publisher: samples, a missing queue, refusals, and a stop at any moment."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Generator, Sequence

import pytest

from weft.errors import InvalidArgument
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.config import Config
from weft.server.node.monitor_publisher import SETTINGS, MonitorPublisher, samples
from weft.server.node.node_api import OnAnswer
from weft.server.observability.node_stats import NodeStats
from weft.server.security.caller import ANONYMOUS, Caller

STATUS = wire.StatusInfo("n1", "1", 1500, "disk", 2, 3, 0, 0, 400, 5000, 600, 7, 8, 9)
INFO = wire.QueueInfo("orders", Settings(), 3, 0, 0, 77, 12, 5, 4, 3, 0, 0, 0, 1, probes=9)
MISSING = wire.Failure("QUEUE_NOT_FOUND", "no such queue", False)
FULL = wire.Failure("QUEUE_FULL", "full", True)


class FakeNode:
    """Answers each request with the next answer; the last one again and again."""

    def __init__(self, *answers: wire.AnyAnswer | None) -> None:
        self._answers = list(answers)
        self.asked: list[tuple[wire.AnyRequest, Sequence[bytes]]] = []

    def submit(
        self,
        request: wire.AnyRequest,
        payload: Sequence[bytes],
        on_answer: OnAnswer,
        who: Caller = ANONYMOUS,
    ) -> int:
        self.asked.append((request, payload))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer is not None:
            on_answer(answer, ())
        return len(self.asked)

    def look(self, look: Callable[[], None]) -> bool:
        threading.Thread(target=look).start()
        return True

    def node_stats(self, *, queues: bool) -> Generator[None, None, NodeStats]:
        yield
        yield
        return NodeStats(STATUS, False, [INFO] if queues else [])


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


def published(node: FakeNode, count: int) -> None:
    publisher = MonitorPublisher(node, "monitor", 0.005)
    publisher.start()
    until(lambda: len(node.asked) >= count)
    publisher.stop()


def test_a_sample_is_one_flat_object_for_each_queue() -> None:
    (body,) = samples(NodeStats(STATUS, False, [INFO]), 1234)
    found = json.loads(body)
    assert found["at_ms"] == 1234
    assert (found["node"], found["queue"]) == ("n1", "orders")
    assert (found["ready"], found["pushed"], found["probes"]) == (3, 5, 9)
    assert (found["uptime_ms"], found["commits"]) == (1500, 7)
    assert all(isinstance(value, int | str) for value in found.values())


def test_samples_are_pushes_with_names_of_their_own() -> None:
    node = FakeNode(wire.Pushed(0, 1, 1, 1, False, "disk"))
    published(node, 3)
    pushes = [request for request, _ in node.asked]
    assert all(isinstance(push, wire.Push) and push.queue == "monitor" for push in pushes)
    assert len({(push.producer, push.batch) for push in pushes}) == len(pushes)  # type: ignore[attr-defined]
    ((payload,),) = {tuple(frames) for _, frames in node.asked[:1]}
    assert json.loads(wire.decode_payload(payload).bodies[0])["queue"] == "orders"


def test_a_missing_queue_is_created_and_the_sample_pushed_again() -> None:
    node = FakeNode(MISSING, wire.Created(True), wire.Pushed(0, 1, 1, 1, False, "disk"))
    published(node, 3)
    first, create, again = (request for request, _ in node.asked[:3])
    assert create == wire.CreateQueue("monitor", SETTINGS)
    assert again == first


def test_a_refusal_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    published(FakeNode(FULL), 5)
    assert len([each for each in caplog.records if "takes no samples" in each.message]) == 1


def test_a_node_that_does_not_answer_holds_up_neither_itself_nor_the_stop() -> None:
    node = FakeNode(None)
    publisher = MonitorPublisher(node, "monitor", 0.005)
    publisher.start()
    until(lambda: bool(node.asked))
    began = time.monotonic()
    publisher.stop()
    assert time.monotonic() - began < 5
    assert len(node.asked) == 1, "one push is under way at most"


def test_bad_settings() -> None:
    with pytest.raises(InvalidArgument, match="queue name"):
        Config(monitor_queue="a b")
    with pytest.raises(InvalidArgument, match="monitor_queue needs a node with data"):
        Config(monitor_queue="m", witness=True, join="h:1")

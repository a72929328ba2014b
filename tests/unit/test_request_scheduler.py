"""What a round of several queues charges, and when it reads a connection again."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.test_request_lines import error_of, held, lines_of
from weft.proto import wire
from weft.server.config import Config
from weft.server.core.request_lines import (
    PEER_REQUESTS_MAX,
    PERIOD_US,
    ROUND_BYTES_MIN,
    RequestLines,
)
from weft.server.edges.edge import ROUND_BYTES_MAX, TICKET_BITS, EdgeCaller, Received
from weft.server.node.call_inbox import QueuedCall
from weft.server.node.request_scheduler import RECEIVED_BYTES_MAX, RequestScheduler
from weft.server.security.caller import ANONYMOUS

#: Far above the processor time of a handler here.
STALL_S = 0.05


def push(queue: str, number: int, peer: int) -> Received:
    request = wire.Push(queue, peer, number, 1)
    return Received(EdgeCaller(peer, number), request, [b"x" * 100], ANONYMOUS)


class Driver:
    """The node around a scheduler: handlers that note what they run, and connections with input."""

    def __init__(self) -> None:
        self.handled: list[tuple[str, int]] = []
        self.stalls: set[str] = set()
        self.input: dict[int, list[Received]] = {}
        self.notes: dict[str, int] = {}
        self.calls: list[Any] = []
        self.stopping = False
        self.answers: list[wire.Failure] = []
        self.paused: set[int] = set()
        shares = SimpleNamespace(of=lambda queue: 0, lent_bytes=lambda queue: 0)
        answer = lambda to, answer: self.answers.append(answer)  # noqa: E731
        self.engine = SimpleNamespace(shares=shares, answer=answer)
        committer: Any = SimpleNamespace(gathered_bytes_max=0)
        edge: Any = self
        calls: Any = self
        self.scheduler = RequestScheduler(calls, edge, committer)

        self.messages_max = self.bytes_max = self.taken_bytes = 0

    def handle(self, request: Any, payload: Any, to: Any, who: Any, *, plain: bool) -> None:
        self.handled.append((request.queue, request.batch))
        if request.queue in self.stalls:
            time.sleep(STALL_S)  # as if another process had the processor

    def receive_from(self, number: int, requests_max: int) -> list[Received]:
        waiting = self.input.get(number, [])
        self.input[number] = waiting[requests_max:]
        return waiting[:requests_max]

    def take_calls(self) -> list[Any]:
        return []

    def register(self, call: QueuedCall) -> None:
        pass

    def handle_queued(self, call: QueuedCall) -> None:
        assert call.request is None, "a cancellation; the call may be under way in the node core"

    def pause(self, number: int) -> bool:
        self.paused.add(number)
        return True

    def resume(self, number: int) -> None:
        self.paused.discard(number)

    def round(self, *received: Received) -> None:
        began = time.perf_counter()
        self.scheduler._run(1, received, [])
        self.scheduler.finish(began, 1)


def test_a_line_is_filled_again_while_its_queue_has_credit() -> None:
    driver = Driver()
    driver.input[1] = [push("a", number, 1) for number in range(2, 40)]
    driver.round(push("a", 1, 1), push("b", 1, 2))
    ran = [number for queue, number in driver.handled if queue == "a"]
    assert ran == list(range(1, 40)), "in order of arrival, in one round"
    assert ("b", 1) in driver.handled


def test_a_stopping_node_reads_no_more() -> None:
    driver = Driver()
    driver.stopping = True
    driver.input[1] = [push("a", 2, 1)]
    driver.round(push("a", 1, 1), push("b", 1, 2))
    assert sorted(driver.handled) == [("a", 1), ("b", 1)]


def test_time_of_another_process_is_not_charged_to_one_queue() -> None:
    driver = Driver()
    driver.stalls = {"a"}
    driver.round(push("a", 1, 1), push("b", 1, 2))
    used = {each.queue: each.used_us for each in driver.scheduler.lines.charges(0)}
    assert used["a"] + used["b"] > 0.7 * STALL_S * 1e6, "the charges add up to the round"
    assert used["a"] < 0.7 * (used["a"] + used["b"]), "both served queues bear the stall"


def test_a_node_reads_less_at_once_for_a_second_after_queues_competed() -> None:
    driver = Driver()
    lone = [push("a", number, 1) for number in (1, 2)]
    limits = []
    for at_us, received in (
        (1, lone),
        (2, [push("a", 3, 1), push("b", 1, 2)]),
        (3, lone),
        (900_000, lone),
        (1_100_000, lone),
    ):
        driver.taken_bytes = ROUND_BYTES_MIN
        competes = driver.scheduler.contends(at_us, received, [])
        assert competes == (at_us == 2)
        if competes:
            driver.scheduler._run(at_us, received, [])
            driver.scheduler.finish(time.perf_counter(), at_us)
        limits.append(driver.bytes_max)
    short, long = RECEIVED_BYTES_MAX, ROUND_BYTES_MAX
    assert limits == [long, short, short, short, long]


# --- calls of gRPC ----------------------------------------------------------------------------


def call(number: int, request: Any = None, peer: int = 5) -> QueuedCall:
    return QueuedCall((peer << TICKET_BITS) + number, request, [b"x"], lambda answer, _: None)


def test_a_held_call_that_is_cancelled_does_not_run() -> None:
    driver = Driver()
    driver.scheduler._admit(1, [], [call(each, wire.Push("a", 1, each, 1)) for each in (1, 2, 3)])
    driver.scheduler._admit(1, [], [call(2)])
    assert driver.scheduler.lines.waiting == 2
    assert [answer.code for answer in driver.answers] == ["CANCELLED"]
    driver.round()
    assert driver.handled == [("a", 1), ("a", 3)]
    driver.scheduler._admit(2, [], [call(3)])
    assert len(driver.answers) == 1, "a call that has run is not answered a second time"


def test_a_connection_of_grpc_with_many_held_calls_is_not_read() -> None:
    driver = Driver()
    lines = driver.scheduler.lines
    many = [call(each, wire.Push("a", 1, each, 1)) for each in range(PEER_REQUESTS_MAX + 5)]
    driver.scheduler._admit(1, [], many)
    other = [call(each, wire.Push("b", 1, each, 1), peer=6) for each in range(3)]
    driver.scheduler._admit(1, [], other)
    driver.scheduler.finish(time.perf_counter(), 1)
    assert driver.paused == {5}
    for _ in range(PEER_REQUESTS_MAX + 8):
        if not lines.waiting:
            break
        driver.round()
    assert driver.paused == set()
    assert len(driver.handled) == PEER_REQUESTS_MAX + 8


def test_a_thread_of_the_node_is_refused_beyond_the_bound() -> None:
    """No socket holds the calls of another thread back."""
    driver = Driver()
    many = [call(each, wire.Push("a", 1, each, 1), peer=0) for each in range(PEER_REQUESTS_MAX + 5)]
    driver.scheduler._admit(1, [], many)
    assert [answer.code for answer in driver.answers] == ["OVERLOADED"] * 5
    driver.round()
    assert len(driver.handled) == PEER_REQUESTS_MAX


# --- the lines by themselves ----------------------------------------------------------------


def bounded_error(*, refilled: bool) -> float:
    """The error if a line holds 32 requests at the start of a round, and a queue wants far more."""
    shares = {"small": 800, "large": 200}
    lines, used, number = lines_of(shares), dict.fromkeys(shares, 0.0), 0

    def fill(name: str) -> None:
        nonlocal number
        peer = 1 if name == "small" else 2
        for _ in range(lines.room(peer)):
            number += 1
            lines.add(held(name, number, size=100 if name == "small" else 30_000, peer=peer))

    for _ in range(500):
        fill("small")
        fill("large")
        lines.begin()
        while (item := lines.take()) is not None:
            name = item.request.queue  # type: ignore[attr-defined]
            if lines.drained and refilled:
                fill(name)
                lines.begin()
            cost = 5.0 if name == "small" else 150.0
            used[name] += cost
            lines.charge(cost)
        lines.finish(0.0)
    return error_of(shares, used)


def test_a_line_that_runs_empty_is_filled_again_in_the_round() -> None:
    """With bounded lines and one receipt a round, a large share of small requests is lost."""
    assert bounded_error(refilled=False) > 0.3
    assert bounded_error(refilled=True) < 0.05


@pytest.mark.parametrize("period_us", [500, PERIOD_US, 20_000])
def test_a_round_of_several_queues_lasts_about_a_period(period_us: int) -> None:
    """With requests so long that no minimum of a round is reached before."""
    lines = RequestLines(lambda queue: 0, lambda queue: 0, period_us)
    for number in range(600):
        lines.add(held("a", number))
        lines.add(held("b", number))
    took = []
    for _ in range(5):
        lines.begin()
        took.append(0.0)
        while lines.take() is not None:
            lines.charge(100.0)
            took[-1] += 100.0
        lines.finish(0.0)
    assert all(period_us <= each <= 2 * period_us + 200 for each in took), took


def test_the_default_period_is_that_of_the_settings() -> None:
    assert Config().share_period_us == PERIOD_US


def test_a_queue_that_returns_in_the_round_takes_part_in_it() -> None:
    lines = lines_of()
    lines.add(held("a", 1))
    lines.begin()
    assert not lines.drained
    first = lines.take()
    assert first is not None
    assert lines.drained
    lines.charge(1.0)
    lines.add(held("a", 2))
    lines.add(held("b", 3))
    lines.begin()
    taken = [first.to]
    while (item := lines.take()) is not None:
        taken.append(item.to)
        lines.charge(1.0)
    lines.finish(100.0)
    assert sorted(taken) == [("a", 1), ("a", 2), ("b", 3)]
    assert lines.room(1) == PEER_REQUESTS_MAX
    for number in range(PEER_REQUESTS_MAX):
        lines.add(held("a", number))
    assert lines.room(1) == 0

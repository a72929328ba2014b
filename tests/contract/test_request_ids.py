"""Request ids: given or generated, returned, and in the log of failed or slow calls."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.contract.served import Served, consume, eventually, serve
from weft.proto import weft_pb2 as pb
from weft.server.edges import call_log
from weft.server.observability.log import JsonFormatter


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = serve(tmp_path)
    yield made
    made.close()


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    """The lines of the call log, as JSON."""
    found: list[dict[str, Any]] = []

    class Handler(logging.StreamHandler[StringIO]):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(json.loads(self.format(record)))

    handler = Handler(StringIO())
    handler.setFormatter(JsonFormatter())
    call_log.log.addHandler(handler)
    level = call_log.log.level
    call_log.log.setLevel(logging.INFO)
    yield found
    call_log.log.setLevel(level)
    call_log.log.removeHandler(handler)


def ended(served: Served, name: str, *metadata: tuple[str, str]) -> tuple[dict[str, str], Any]:
    """The trailing metadata and the status of one DescribeQueue."""
    call = served.queue.DescribeQueue.future(
        pb.DescribeQueueRequest(queue=name), metadata=metadata, timeout=100
    )
    error = call.exception()
    return dict(call.trailing_metadata()), error and error.code()


def test_a_given_id_comes_back(served: Served) -> None:
    trailing, status = ended(served, served.make(), ("x-request-id", "order-17/a"))
    assert (trailing["x-request-id"], status) == ("order-17/a", None)


@pytest.mark.parametrize("given", ["", "x" * 129, "two words", 'a"b'])
def test_an_absent_or_strange_id_is_replaced(served: Served, given: str) -> None:
    metadata = [("x-request-id", given)] if given else []
    trailing, _ = ended(served, served.make(), *metadata)
    assert re.fullmatch(r"[0-9a-f]{16}", trailing["x-request-id"])


def test_two_calls_have_two_ids(served: Served) -> None:
    name = served.make()
    assert ended(served, name)[0] != ended(served, name)[0]


def test_a_refused_call_tells_and_logs_its_id(served: Served, lines: list[dict[str, Any]]) -> None:
    trailing, status = ended(served, "nowhere", ("x-request-id", "r-1"))
    assert status is grpc.StatusCode.NOT_FOUND
    assert trailing["x-request-id"] == "r-1"
    assert trailing["weft-code"] == "QUEUE_NOT_FOUND"
    (line,) = lines
    assert (line["message"], line["level"]) == ("call refused", "info")
    assert (line["request"], line["call"]) == ("r-1", "DescribeQueue")
    assert line["code"] == "QUEUE_NOT_FOUND"
    assert line["took_ms"] >= 0


def test_a_slow_call_is_logged_and_a_quick_one_is_not(
    served: Served, lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = served.make()
    ended(served, name)
    assert not lines
    monkeypatch.setattr(call_log, "SLOW_S", 0.0)
    ended(served, name, ("x-request-id", "r-2"))
    (line,) = lines
    assert (line["message"], line["level"], line["request"]) == ("call was slow", "warning", "r-2")


def test_a_pop_that_waits_is_not_slow(
    served: Served, lines: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_log, "SLOW_S", 0.05)
    assert served.pop(served.make(), wait_ms=100) == []
    assert not [line for line in lines if line["call"] == "Pop"]


def test_a_flood_of_refusals_is_cut_short(served: Served, lines: list[dict[str, Any]]) -> None:
    for _ in range(4 * call_log.LINES_PER_SECOND_MAX):
        ended(served, "nowhere")
    refused = [line for line in lines if line["message"] == "call refused"]
    assert len(refused) < 4 * call_log.LINES_PER_SECOND_MAX
    served.edge.calls._second = -1  # as if the next second had begun
    ended(served, "nowhere")
    assert any(line["message"] == "calls were not logged" for line in lines)


def test_the_book_balances(served: Served) -> None:
    book, name = served.edge.calls, served.make()
    ended(served, name)
    ended(served, "nowhere")
    stream = consume(served, name)
    eventually(lambda: book.under_way == 1)
    stream.cancel()
    eventually(lambda: book.under_way == 0)
    assert book.ended["DescribeQueue", "OK"] == 1
    assert book.ended["DescribeQueue", "QUEUE_NOT_FOUND"] == 1
    assert book.ended["Consume", "CANCELLED"] == 1
    assert "Consume" not in book.times

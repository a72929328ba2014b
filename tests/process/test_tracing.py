"""A trace from the push through every delivery to the ack, and none without a tracer."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import weft
from weft import testing
from weft.client import tracing

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def servers() -> Iterator[list[str]]:
    with testing.cluster(durability="os") as made:
        yield made.servers


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """An application with tracing set up; a process can set the real provider only once."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter


def spans(seen: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in seen.get_finished_spans() if span.name == name]


def outcomes(seen: InMemorySpanExporter, name: str) -> list[object]:
    return [(span.attributes or {})["weft.outcome"] for span in spans(seen, name)]


def is_child(child: ReadableSpan, parent: ReadableSpan) -> bool:
    assert child.context is not None
    assert parent.context is not None
    return (
        child.parent is not None
        and child.parent.span_id == parent.context.span_id
        and child.context.trace_id == parent.context.trace_id
    )


def test_push_every_delivery_and_ack_are_one_trace(
    servers: list[str], seen: InMemorySpanExporter
) -> None:
    with weft.connect(servers) as client:
        client.create_queue("orders")
        queue = client.queue("orders")
        with trace.get_tracer("app").start_as_current_span("checkout"):
            queue.push(b"one", headers={"own": "header"})
        first = queue.pop()
        assert first is not None
        assert first.headers["own"] == "header"
        context = tracing.context_of(first)
        with trace.get_tracer("app").start_as_current_span("work", context=context):
            first.nack()
        second = queue.pop()
        assert second is not None
        second.ack()
    (checkout,), (push,) = spans(seen, "checkout"), spans(seen, "push orders")
    deliveries = spans(seen, "deliver orders")
    assert is_child(push, checkout)
    assert all(is_child(each, push) for each in deliveries)
    assert is_child(spans(seen, "work")[0], deliveries[0])
    assert outcomes(seen, "deliver orders") == ["nacked", "acked"]
    facts = [each.attributes or {} for each in deliveries]
    assert [each["weft.deliveries"] for each in facts] == [1, 2]
    assert facts[0]["messaging.message.id"] == str(first.id)
    assert push.kind is trace.SpanKind.PRODUCER
    assert deliveries[0].kind is trace.SpanKind.CONSUMER


def test_many_messages_a_producer_and_a_consumer(
    servers: list[str], seen: InMemorySpanExporter
) -> None:
    with weft.connect(servers) as client:
        client.create_queue("many")
        queue = client.queue("many")
        queue.push_many([b"a", b"b"], headers=[None, {"x": "y"}])
        with queue.producer() as producer:
            with trace.get_tracer("app").start_as_current_span("request"):
                producer.send(b"c")
            producer.send_many([b"d", b"e"])
        with queue.consume(stop_when_empty=True) as consumer:
            for message in consumer:
                message.ack()
    assert outcomes(seen, "deliver many") == ["acked"] * 5
    parents = [*spans(seen, "push many"), *spans(seen, "request"), *spans(seen, "create many")]
    assert len(parents) == 1 + 1 + 2
    for delivery in spans(seen, "deliver many"):
        assert any(is_child(delivery, parent) for parent in parents)


async def test_the_async_client(servers: list[str], seen: InMemorySpanExporter) -> None:
    async with await weft.aio.connect(servers) as client:
        await client.create_queue("async")
        queue = client.queue("async")
        async with queue.producer() as producer:
            await producer.send(b"a")
        message = await queue.pop(wait_ms=60_000)
        assert message is not None
        await message.ack()
    assert is_child(spans(seen, "deliver async")[0], spans(seen, "create async")[0])


def test_what_is_never_settled_ends_with_the_message(
    servers: list[str], seen: InMemorySpanExporter
) -> None:
    with weft.connect(servers) as client:
        client.create_queue("left")
        queue = client.queue("left")
        queue.push(b"x")
        message = queue.pop(lease_ms=100)
        assert spans(seen, "deliver left") == []
        del message
        gc.collect()
        assert outcomes(seen, "deliver left") == ["not settled"]
        again = queue.pop(wait_ms=60_000)
        assert again is not None
        assert again.headers == queue_headers(again)
        queue.peek()  # shows, and delivers nothing
        assert len(spans(seen, "deliver left")) == 1


def queue_headers(message: Any) -> dict[str, str]:
    return {"traceparent": message.headers["traceparent"]}


_PROGRAM = """
import sys
if {block}:
    sys.modules["opentelemetry.trace"] = None
import weft
from weft.client import tracing
assert not tracing.on()
with weft.connect(sys.argv[1]) as client:
    client.create_queue("plain")
    queue = client.queue("plain")
    queue.push(b"x")
    with queue.producer() as producer:
        producer.send(b"y", headers=dict(a="b"))
    messages = queue.pop_many(2, wait_ms=1000)
    while len(messages) < 2:
        messages += queue.pop_many(2, wait_ms=1000)
    assert sorted(str(message.headers) for message in messages) == ["{{'a': 'b'}}", "{{}}"]
    assert all(tracing.context_of(message) is None for message in messages)
    queue.ack_many(messages)
"""


@pytest.mark.parametrize("block", [True, False], ids=["not installed", "no provider"])
def test_nothing_is_added_where_nobody_traces(servers: list[str], block: bool) -> None:
    told = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(block=block), servers[0]],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr

"""OpenTelemetry: a trace travels in the headers of a message, from the push to the ack.

With the extra ``weft[otel]`` installed and a tracer provider set up by the application, a push is a
span of kind PRODUCER. The push puts its context into the headers of its messages (``traceparent``,
according to W3C Trace Context, so that clients in other languages can do the same). Every delivery
of such a message is a span of kind CONSUMER, a child of the push. The span begins when the message
arrives, and ends when the ack or nack is confirmed, when the client finds the lease lost, or when
the application discards the message unsettled; `weft.outcome` says which. A message of a producer,
which is pushed later with others, is a child of the span that was current at the send. `context_of`
returns the context of a delivery for the application's own spans.

Without the package, or without a provider, the client does nothing and adds no headers.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final

from weft import limits
from weft.proto import wire

from .producer.batch import Columns, Headers, HeadersColumn

if TYPE_CHECKING:
    from .consumer.lease import Claim, ClientLease
    from .consumer.message import BaseMessage

TRACEPARENT: Final = "traceparent"
_NAME: Final = "weft"


def _load() -> Any:
    try:
        return importlib.import_module("opentelemetry.trace")
    except ImportError:
        return None


_trace: Any = _load()
#: True if the environment names no provider: then a push skips the lookup until one is set.
_UNSET: Final = "OTEL_PYTHON_TRACER_PROVIDER" not in os.environ
_propagate: Any = importlib.import_module("opentelemetry.propagate") if _trace else None


def on() -> bool:
    """True if the application has set up tracing."""
    if _trace is None or (_UNSET and getattr(_trace, "_TRACER_PROVIDER", _trace) is None):
        return False
    provider = _trace.get_tracer_provider()
    return not isinstance(provider, (_trace.ProxyTracerProvider, _trace.NoOpTracerProvider))


@contextmanager
def pushing(queue: str, columns: Columns) -> Iterator[Columns]:
    """Wraps a push in a span; yields the messages with the span's context in their headers."""
    if not on():
        yield columns
        return
    tracer = _trace.get_tracer(_NAME)
    count = len(columns.bodies)
    facts = _facts(queue, "send") | {"messaging.batch.message_count": count}
    with tracer.start_as_current_span(
        f"push {queue}", kind=_trace.SpanKind.PRODUCER, attributes=facts
    ):
        carried = _carrier()
        column = columns.headers or [None] * count
        headers: HeadersColumn = [_with(each, carried) for each in column]
        yield columns._replace(headers=headers)


def carry(queue: str, headers: Headers | None) -> Headers | None:
    """Returns the headers of a message to push later, with the current context."""
    if headers is not None and not isinstance(headers, Mapping):
        return headers  # a later check refuses these headers
    if _trace.get_current_span().get_span_context().is_valid:
        return _with(headers, _carrier())
    tracer = _trace.get_tracer(_NAME)
    facts = _facts(queue, "create")
    with tracer.start_as_current_span(
        f"create {queue}", kind=_trace.SpanKind.PRODUCER, attributes=facts
    ):
        return _with(headers, _carrier())


class Deliveries:
    """The open spans of a lease, by index; spans left at deletion were not settled."""

    __slots__ = ("spans",)

    def __init__(self, spans: dict[int, Any]) -> None:
        self.spans = spans

    def end(self, indexes: Iterable[int], outcome: str) -> None:
        for index in indexes:
            span = self.spans.pop(index, None)
            if span is not None:
                span.set_attribute("weft.outcome", outcome)
                span.end()

    def __del__(self) -> None:
        self.end(list(self.spans), "not settled")


def delivered(leases: Sequence[ClientLease]) -> None:
    """Starts a span for each message that carries a context, of leases with headers."""
    if not on():
        return
    tracer = _trace.get_tracer(_NAME)
    for lease in leases:
        if not lease.lent.nonce:
            continue
        assert lease.headers is not None
        facts = _facts(lease.queue, "process") | {"weft.deliveries": lease.lent.deliveries}
        spans = {
            index: tracer.start_span(
                f"deliver {lease.queue}",
                context=_propagate.extract(headers),
                kind=_trace.SpanKind.CONSUMER,
                attributes=facts | {"messaging.message.id": str(lease.id(index))},
            )
            for index, headers in zip(lease.indexes(), lease.headers, strict=True)
            if headers and TRACEPARENT in headers
        }
        if spans:
            lease.deliveries = Deliveries(spans)


def settled(claims: Sequence[Claim], lost: Sequence[Claim], request: wire.AnyRequest) -> None:
    """Ends the spans of an answered ack or nack."""
    match request:
        case wire.Ack():
            outcome = "acked"
        case wire.Nack(counted=False):
            outcome = "given back"
        case wire.Move():
            outcome = "moved"
        case wire.Nack():
            outcome = "nacked"
        case _:
            return  # an extension ends no span
    gone = {id(claim) for claim in lost}
    for claim in claims:
        if claim.lease.deliveries is not None:
            claim.lease.deliveries.end(
                claim.indexes, "lease lost" if id(claim) in gone else outcome
            )


def context_of(message: BaseMessage) -> Any:
    """Returns the context of a message's delivery, or None if there is none.

    Use the context in `start_as_current_span(context=...)`.
    """
    deliveries = message._lease.deliveries
    span = deliveries.spans.get(message._index) if deliveries is not None else None
    return _trace.set_span_in_context(span) if span is not None else None


def running(name: str, message: BaseMessage) -> AbstractContextManager[Any]:
    """Makes a span current in which a task of this name runs: a child of the delivery's span."""
    facts = {"weft.task": name, "messaging.message.id": str(message.id)}
    span: AbstractContextManager[Any] = _trace.get_tracer(_NAME).start_as_current_span(
        f"run {name}", context=context_of(message), attributes=facts
    )
    return span


def _facts(queue: str, operation: str) -> dict[str, Any]:
    return {
        "messaging.system": "weft",
        "messaging.destination.name": queue,
        "messaging.operation.type": operation,
    }


def _carrier() -> dict[str, str]:
    carried: dict[str, str] = {}
    _propagate.inject(carried)
    return carried


def _with(headers: Headers | None, carried: dict[str, str]) -> dict[str, str]:
    """Merges: own headers take precedence, and a trace must not exceed the size limit."""
    own = dict(headers or {})
    both = carried | own
    size = sum(4 * (len(str(name)) + len(str(value))) for name, value in both.items())
    return both if size <= limits.HEADERS_BYTES_MAX else own

"""An app whose tasks report the trace that they run in; tracing is set up at the import."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from weft import tasks

app = tasks.App("traced")


def set_up() -> None:
    trace.set_tracer_provider(TracerProvider())


@app.task
def trace_of() -> str:
    return f"{trace.get_current_span().get_span_context().trace_id:032x}"


@app.task
def forward() -> str:
    tasks.current().push("traced.out", b"x")
    return f"{trace.get_current_span().get_span_context().trace_id:032x}"

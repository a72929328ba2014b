"""A process that traces: submits tasks, runs them in a thread, and compares the traces."""

from __future__ import annotations

import sys

from opentelemetry import trace

from tests.tasks import traced
from weft import tasks
from weft.tasks.testing import thread_worker


def main(servers: str) -> None:
    traced.set_up()
    with thread_worker(traced.app, servers.split(",")):
        client = traced.app.client
        client.create_queue("traced.out")
        tracer = trace.get_tracer("test")
        for task in (traced.trace_of, traced.forward):
            with tracer.start_as_current_span("caller") as span:
                wanted = f"{span.get_span_context().trace_id:032x}"
                futures = [task.submit(), *task.map([])]
            assert tasks.gather(futures, timeout=60) == [wanted], task.name
        message = client.queue("traced.out").pop(wait_ms=10_000)
        assert message is not None
        assert message.headers["traceparent"].split("-")[1] == wanted
        message.ack()
        assert traced.trace_of.submit().result(60) != wanted, "a submission alone has its own trace"
    print("one trace")


if __name__ == "__main__":
    main(sys.argv[1])

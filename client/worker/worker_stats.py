"""Statistics of a worker. One thread writes them; any thread may read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

#: Upper bounds of the histogram of processing times, in seconds; the last bucket is open.
BUCKETS_S: Final = (0.001, 0.01, 0.1, 1.0, 10.0, 60.0)


@dataclass
class WorkerStats:
    """Counts of messages, and processing times in seconds.

    `started` = `succeeded` + `retried` + `dead` + `lost` + `in_flight`; the other counts are
    subsets.
    """

    #: Name of the queue.
    queue: str = ""
    #: Messages given to a handler.
    started: int = 0
    #: Handled and acked, by the worker or by the handler itself.
    succeeded: int = 0
    #: Failed, and returned to the queue for another attempt.
    retried: int = 0
    #: Failed for the last time, or rejected.
    dead: int = 0
    #: The lease was lost while the handler ran, or before the ack: delivered again.
    lost: int = 0
    #: Failures by the time limit; also counted in `retried` or `dead`.
    timed_out: int = 0
    #: Handlers that still ran when the worker gave up on them.
    abandoned: int = 0
    #: Messages that handlers work on now.
    in_flight: int = 0
    #: Time in handlers: the sum, and the longest, in seconds.
    processing_s: float = 0.0
    processing_s_max: float = 0.0
    #: Messages by processing time: up to 1, 10, 100 ms, 1, 10, 60 s, and longer.
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS_S) + 1))

    def took(self, seconds: float) -> None:
        """Counts one handler that ended after so many seconds."""
        self.processing_s += seconds
        self.processing_s_max = max(self.processing_s_max, seconds)
        self.buckets[sum(seconds > bound for bound in BUCKETS_S)] += 1

    def summary(self) -> str:
        """Returns one line for a log."""
        ended = max(1, sum(self.buckets))
        return (
            f"worker of {self.queue}: {self.started} started, {self.succeeded} succeeded, "
            f"{self.retried} retried, {self.dead} dead-lettered, {self.lost} lost, "
            f"{self.timed_out} timed out, {self.abandoned} abandoned, {self.in_flight} in flight; "
            f"mean {self.processing_s / ended * 1000:.1f} ms, "
            f"longest {self.processing_s_max * 1000:.1f} ms"
        )

    def prometheus(self) -> str:
        """Returns the stats in Prometheus' text format, for an endpoint of the application."""
        label = f'{{queue="{self.queue}"}}'
        lines = ["# TYPE weft_worker_messages_total counter"]
        for outcome in ("succeeded", "retried", "dead", "lost"):
            count = getattr(self, outcome)
            lines.append(
                f'weft_worker_messages_total{{queue="{self.queue}",outcome="{outcome}"}} {count}'
            )
        for name in ("timed_out", "abandoned"):
            lines += [
                f"# TYPE weft_worker_{name}_total counter",
                f"weft_worker_{name}_total{label} {getattr(self, name)}",
            ]
        lines += ["# TYPE weft_worker_in_flight gauge", f"weft_worker_in_flight{label} "]
        lines[-1] += str(self.in_flight)
        lines.append("# TYPE weft_worker_processing_seconds histogram")
        total = 0
        for bound, count in zip((*BUCKETS_S, "+Inf"), self.buckets, strict=True):
            total += count
            lines.append(
                f'weft_worker_processing_seconds_bucket{{queue="{self.queue}",le="{bound}"}} '
                f"{total}"
            )
        lines += [
            f"weft_worker_processing_seconds_sum{label} {self.processing_s:.6f}",
            f"weft_worker_processing_seconds_count{label} {total}",
        ]
        return "\n".join(lines) + "\n"

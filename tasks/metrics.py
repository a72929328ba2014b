"""Metrics of workers and provisioners, in Prometheus' text format.

The figures are those of heartbeats, so one exporter (`weft tasks metrics APP --serve`) has all
workers of an app, also those in batch jobs, which no scrape configuration could name. A worker
serves its own with `weft worker --metrics`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from weft.client.stats import QueueStats

from .heartbeat import WorkerBeat

if TYPE_CHECKING:
    from .provisioner.provisioner import ProvisionReport


class MetricFamily(NamedTuple):
    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


_WORKER: Final = ("app", "host", "pid")
SLOTS: Final = MetricFamily("weft_worker_slots", "gauge", "Tasks that the worker runs at once, in "
                            "processes or threads.", _WORKER)  # fmt: skip
RUNNING: Final = MetricFamily("weft_worker_running_tasks", "gauge", "Running tasks.", _WORKER)
LONGEST: Final = MetricFamily(
    "weft_worker_longest_task_seconds", "gauge", "Age of the oldest running task.", _WORKER
)
BEAT_AGE: Final = MetricFamily(
    "weft_worker_heartbeat_age_seconds", "gauge", "Time since the worker's heartbeat.", _WORKER
)
ENDED: Final = MetricFamily(
    "weft_worker_tasks_total", "counter",
    "Ends of tasks: succeeded, failed, retried, or lost (settled too late, and delivered again).",
    (*_WORKER, "end"),
)  # fmt: skip
BUSY: Final = MetricFamily(
    "weft_worker_busy_seconds_total", "counter", "Time in tasks, over all slots.", _WORKER
)
DEATHS: Final = MetricFamily(
    "weft_worker_deaths_total", "counter",
    "Worker processes that ended by themselves: killed, crashed, or killed by the kernel for "
    "memory.",
    (*_WORKER, "cause"),
)  # fmt: skip
TASK_ENDED: Final = MetricFamily(
    "weft_tasks_ended_total", "counter", "Ended tasks by name: succeeded or failed.",
    (*_WORKER, "task", "end"),
)  # fmt: skip
WAITING: Final = MetricFamily(
    "weft_tasks_waiting", "gauge", "Tasks of a queue that wait.", ("app", "queue")
)
AT_WORKERS: Final = MetricFamily(
    "weft_tasks_at_workers", "gauge", "Tasks of a queue that workers have.", ("app", "queue")
)
_POOL: Final = ("app", "name")
PROVISIONER: Final = (
    MetricFamily("weft_provision_slots", "gauge", "Slots that exist or are being started.", _POOL),
    MetricFamily("weft_provision_wanted_slots", "gauge", "Slots that the rules ask for.", _POOL),
    MetricFamily("weft_provision_leader", "gauge", "1 if this provisioner acts.", _POOL),
    MetricFamily("weft_provision_hook_failures_total", "counter", "Hooks that failed.", _POOL),
)
WORKER: Final = (SLOTS, RUNNING, LONGEST, BEAT_AGE, ENDED, BUSY, DEATHS, TASK_ENDED)
QUEUES: Final = (WAITING, AT_WORKERS)

_Row = tuple[MetricFamily, tuple[str, ...], float]


def workers_text(app: str, beats: Iterable[WorkerBeat], queues: Iterable[QueueStats] = ()) -> str:
    """The metrics of workers and queues."""
    now = time.time()
    rows = [row for beat in beats for row in _worker_rows(app, beat, now)]
    for queue in queues:
        rows.append((WAITING, (app, queue.name), queue.ready))
        rows.append((AT_WORKERS, (app, queue.name), queue.leased))
    return _text((*WORKER, *QUEUES), rows)


def provisioner_text(app: str, name: str, reports: Sequence[ProvisionReport]) -> str:
    """The metrics of a provisioner by its last report."""
    rows: list[_Row] = []
    for each in reports:
        values = (each.slots, each.wanted, int(each.leader), each.hook_failures)
        rows += [
            (family, (app, name), value) for family, value in zip(PROVISIONER, values, strict=True)
        ]
    return _text(PROVISIONER, rows)


def _worker_rows(app: str, beat: WorkerBeat, now: float) -> list[_Row]:
    here = (app, beat.host, str(beat.pid))
    counts = beat.counts
    rows: list[_Row] = [
        (SLOTS, here, beat.concurrency),
        (RUNNING, here, len(beat.running)),
        (LONGEST, here, max((now - at for at in beat.running.values()), default=0.0)),
        (BEAT_AGE, here, max(0.0, now - beat.beat)),
        (BUSY, here, counts.busy_s),
    ]
    for end in ("succeeded", "failed", "retried", "lost"):
        rows.append((ENDED, (*here, end), getattr(counts, end)))
    for cause, deaths in beat.deaths.items():
        rows.append((DEATHS, (*here, cause), deaths))
    for task, (succeeded, failed) in counts.by_task.items():
        rows.append((TASK_ENDED, (*here, task, "succeeded"), succeeded))
        rows.append((TASK_ENDED, (*here, task, "failed"), failed))
    return rows


def _text(families: Iterable[MetricFamily], rows: Sequence[_Row]) -> str:
    lines: list[str] = []
    for family in families:
        lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
        for one, values, value in rows:
            if one is family:
                labels = ",".join(
                    f'{name}="{_escaped(text)}"'
                    for name, text in zip(family.labels, values, strict=True)
                )
                lines.append(f"{family.name}{{{labels}}} {value:g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

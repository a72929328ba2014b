"""`weft tasks`: the workers and tasks of an app."""

from __future__ import annotations

import sys
import threading
import time
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from weft.client import arguments
from weft.client.cli import failure, options, output
from weft.client.sync_client import Client
from weft.client.transport.blocking_link import run
from weft.client.worker.signals import stopping
from weft.ids import MessageId

from .batch_results import BatchResults
from .call import check_app_name, decode_call, queue_name
from .cancellation import cancel_task, mark_prefix
from .failed_call import retry_task
from .graph_command import graph
from .heartbeat import WorkerBeat, beats_of
from .metrics import workers_text
from .metrics_endpoint import MetricsEndpoint, parse_place
from .outcome import PickledResult, TaskError
from .sites.site_table import SITE_COLUMNS, percent, site_rows, sites_of

_COLUMNS = (
    "worker", "site", "pool", "processes", "queues", "running", "succeeded", "failed", "retried",
    "lost", "local",
)  # fmt: skip
_NUMBERS = ("processes", "running", "succeeded", "failed", "retried", "lost", "local")


@click.group
def tasks() -> None:
    """Show, cancel and retry tasks and graphs, and show the workers of an app and their metrics."""


@tasks.command("list")
@click.argument("app")
@options.everywhere
def list_(app: str) -> None:
    """Show the workers of an app and the queues of its tasks.

    A worker writes a heartbeat every 5 seconds; a dead one is not listed after 20 seconds.

    \b
    Examples:
      weft tasks list shop
      weft tasks list shop --json | jq '.workers[].running'
    """
    check_app_name(app)
    with options.connect() as client:
        _show_app(client, app)


@tasks.command()
@click.argument("app")
@click.option(
    "--interval", type=click.FloatRange(0.2, 3600), default=2.0, show_default=True,
    help="Seconds between two updates.",
)  # fmt: skip
def top(app: str, interval: float) -> None:
    """Show the workers and queues of an app again and again, until Ctrl-C.

    \b
    Examples:
      weft tasks top shop
    """
    check_app_name(app)
    with options.connect() as client:
        try:
            while True:
                if sys.stdout.isatty():
                    click.clear()
                _show_app(client, app)
                time.sleep(interval)
        except KeyboardInterrupt:
            return  # Ctrl-C is the documented way to exit.


@tasks.command()
@click.argument("app")
@click.argument("task_id", metavar="ID")
@options.everywhere
def show(app: str, task_id: str) -> None:
    """Show the state of a task: waiting, running, succeeded, failed or cancelled.

    ID is a future's id. Exit code 3: the app has no such task, or its result has expired.

    \b
    Examples:
      weft tasks show shop 00000000000000000000000000000000
    """
    check_app_name(app)
    number = arguments.as_message_id("ID", task_id)
    with options.connect() as client:
        state = state_of(client, app, number)
    if options.wants_json():
        output.as_json({"id": str(number), **state})
    else:
        output.facts([(name, str(value)) for name, value in state.items()], str(number))
    if state["state"] == "unknown":
        click.get_current_context().exit(failure.NOTHING_THERE)


@tasks.command()
@click.argument("app")
@click.argument("task_id", metavar="ID")
@options.everywhere
def cancel(app: str, task_id: str) -> None:
    """Cancel a task. A waiting task ends at once; a running one is interrupted by its worker.

    Exit code 3: the task has ended before.

    \b
    Examples:
      weft tasks cancel shop 00000000000000000000000000000000
    """
    check_app_name(app)
    number = arguments.as_message_id("ID", task_id)
    with options.connect() as client:
        ended = state_of(client, app, number)["state"] in ("succeeded", "failed", "cancelled")
        if not ended:
            run(cancel_task(client._session, app, number, _queues(client, app)))
    if options.wants_json():
        output.as_json({"id": str(number), "cancelled": not ended})
    else:
        click.echo(f"{number} has ended before" if ended else f"cancelled {number}")
    if ended:
        click.get_current_context().exit(failure.NOTHING_THERE)


@tasks.command()
@click.argument("app")
@click.argument("task_ids", metavar="ID...", nargs=-1, required=True)
@options.everywhere
def retry(app: str, task_ids: tuple[str, ...]) -> None:
    """Submit the calls of failed tasks again, each as a new task with an id of its own.

    A failed task keeps its failure. A second retry of a task prints the id of the first.

    \b
    Examples:
      weft tasks retry shop 00000000000000000000000000000000
    """
    check_app_name(app)
    numbers = [arguments.as_message_id("ID", each) for each in task_ids]
    rows: list[dict[str, str]] = []
    with options.connect() as client:
        for number in numbers:
            new = run(retry_task(client._session, app, number))
            rows.append({"id": str(number), "retried_as": str(new)})
            if not options.wants_json():
                click.echo(f"{number} is retried as {new}")
    if options.wants_json():
        output.as_json(rows)


@tasks.command()
@click.argument("app")
@click.option(
    "--serve", metavar="HOST:PORT",
    help="Serve the metrics for Prometheus at /metrics, until Ctrl-C.",
)  # fmt: skip
@options.everywhere
def metrics(app: str, serve: str | None) -> None:
    """Print the metrics of an app's workers and queues in Prometheus' text format.

    \b
    Examples:
      weft tasks metrics shop
      weft tasks metrics shop --serve 0.0.0.0:9464
    """
    check_app_name(app)
    with options.connect() as client:

        def text() -> str:
            queues = client.list_queues(queue_name(app, ""))
            return workers_text(app, beats_of(client, app), queues)

        if serve is None:
            click.echo(text(), nl=False)
            return
        ended = threading.Event()
        endpoint = MetricsEndpoint(*parse_place(serve), text)
        with endpoint, stopping(lambda now: ended.set()):
            click.echo(f"metrics of {app} at port {endpoint.port}", err=True)
            ended.wait()


tasks.add_command(graph)


def state_of(client: Client, app: str, number: MessageId) -> dict[str, Any]:
    """The state of a task with the details that are known."""
    results = BatchResults(client._session, app, number, None)
    run(results.scan())
    outcome = results.found.get(number.index)
    if isinstance(outcome, TaskError):
        state = "cancelled" if outcome.kind == "TASK_CANCELLED" else "failed"
        details = {"error": outcome.error, "text": outcome.text, "trace": outcome.trace}
        return {"state": state, **{name: text for name, text in details.items() if text}}
    if isinstance(outcome, PickledResult):
        return {"state": "succeeded", "result": "pickled, shown by no command: use app.future(id)"}
    if outcome is not None:
        return {"state": "succeeded", "result": repr(run(results.value(number, number.index)))}
    for beat in beats_of(client, app):
        if str(number) in beat.running:
            since = datetime.fromtimestamp(beat.running[str(number)], UTC)
            started = since.isoformat(timespec="seconds")
            return {"state": "running", "worker": f"{beat.host} {beat.pid}", "started": started}
    marked = client.kv.lookup(mark_prefix(app) + str(number)) is not None
    for queue in _queues(client, app):
        for delayed in (False, True):
            for message in client.queue(queue).peek(_PEEKED, delayed=delayed):
                if message.id == number:
                    call = decode_call(message.body)
                    state = "delayed" if delayed else "waiting"
                    return {"state": state, "name": call.task, "queue": queue}
    return {"state": "cancelled" if marked else "unknown"}


#: Messages of a queue in which `show` looks for a task.
_PEEKED = 10_000


def _queues(client: Client, app: str) -> list[str]:
    return [queue.name for queue in client.list_queues(queue_name(app, ""))]


def _show_app(client: Client, app: str) -> None:
    beats, queues = beats_of(client, app), client.list_queues(queue_name(app, ""))
    if options.wants_json():
        rows = [
            {"queue": each.name, "ready": each.ready, "delayed": each.delayed,
             "leased": each.leased, "waiting": each.waiting}
            for each in queues
        ]  # fmt: skip
        output.as_json(
            {
                "workers": msgspec.to_builtins([_fields(b) for b in beats]), "queues": rows,
                "sites": {name: load.as_json() for name, load in sites_of(beats, queues).items()},
            }
        )  # fmt: skip
        return
    output.table(_COLUMNS, [_row(beat) for beat in beats], right=_NUMBERS)
    if sites := sites_of(beats, queues):
        output.table(SITE_COLUMNS, site_rows(sites), right=SITE_COLUMNS[1:])
    output.table(
        ("queue", "ready", "delayed", "at workers", "wait for others"),
        [
            (each.name, *map(str, (each.ready, each.delayed, each.leased, each.waiting)))
            for each in queues
        ],
        right=("ready", "delayed", "at workers", "wait for others"),
    )


def _fields(beat: WorkerBeat) -> dict[str, Any]:
    placed = msgspec.structs.asdict(beat.counts.placed)
    by_task = {name: list(ends) for name, ends in beat.counts.by_task.items()}
    counts = {**msgspec.structs.asdict(beat.counts), "placed": placed, "by_task": by_task}
    return {**msgspec.structs.asdict(beat), "counts": counts}


def _row(beat: WorkerBeat) -> list[str]:
    counts = beat.counts
    return [
        f"{beat.host} {beat.pid}", beat.site, beat.pool, str(beat.concurrency),
        " ".join(beat.queues),
        str(len(beat.running)), str(counts.succeeded), str(counts.failed), str(counts.retried),
        str(counts.lost), percent(counts.placed.local_share),
    ]  # fmt: skip

"""`weft provision`: starts and stops workers as the load of an app asks."""

from __future__ import annotations

import os
import time
from typing import Any, Final

import click
import msgspec

from weft.client import arguments
from weft.client.cli import options, output
from weft.client.worker.signals import stopping
from weft.errors import InvalidArgument
from weft.tasks.app_location import AppLocation
from weft.tasks.call import check_app_name, check_queue
from weft.tasks.metrics import provisioner_text
from weft.tasks.metrics_endpoint import MetricsEndpoint
from weft.tasks.worker_options import CONCURRENCY_MAX, GRACE_S

from .provision_plot import check_plot, draw_reports
from .provisioner import Provisioner, ProvisionReport
from .slot_policy import GROWTH, INTERVAL_S, SlotPolicy
from .worker_source import CommandSource, ProcessSource, WorkerSource, local_command

MAX_IDLE_S: Final = 300.0
HOOK_S: Final = 60.0
BOOT_S: Final = 120.0
#: Reports that `--plot` keeps: the newest ones.
REPORTS_MAX: Final = 20_000


@click.command
@click.argument("app")
@click.option(
    "--worker", "location", metavar="MODULE:APP",
    help="Start `weft worker MODULE:APP` processes on this machine.",
)  # fmt: skip
@click.option(
    "--start", metavar="COMMAND",
    help="A shell command that starts WEFT_WORKERS workers, instead of --worker.",
)  # fmt: skip
@click.option(
    "--stop", metavar="COMMAND",
    help="A shell command that stops WEFT_WORKERS workers.  [default: idle workers end themselves]",
)  # fmt: skip
@click.option(
    "--count", metavar="COMMAND",
    help="A shell command that prints the number of running and starting workers.  [default: "
    "heartbeats]",
)  # fmt: skip
@click.option(
    "-q", "--queue", "queues", multiple=True, metavar="NAME",
    help="A queue of the app; several times for several.  [default: all queues of the app]",
)  # fmt: skip
@click.option("--min", "least", default=0, show_default=True, help="The least slots.")
@click.option("--max", "most", default=os.cpu_count() or 1, help="The most slots.  [default: CPUs]")
@click.option(
    "-c", "--slots-per-worker", default=1, show_default=True, help="The slots of one worker."
)
@click.option(
    "--interval", "interval_s", default=INTERVAL_S, show_default=True, metavar="S",
    help="Seconds between two decisions.",
)  # fmt: skip
@click.option(
    "--growth", default=GROWTH, show_default=True,
    help="Add a step when so many more tasks wait than an interval ago.",
)  # fmt: skip
@click.option("--step", default=1, show_default=True, help="Slots that --growth adds.")
@click.option(
    "--drain", "drain_s", type=float, metavar="S",
    help="Have slots to empty the queues within so many seconds.  [default: 3 intervals]",
)  # fmt: skip
@click.option(
    "--cooldown", "cooldown_s", type=float, metavar="S",
    help="Stop slots that were not needed for so many seconds.  [default: 1 interval]",
)  # fmt: skip
@click.option(
    "--max-idle", "max_idle_s", default=MAX_IDLE_S, show_default=True, metavar="S",
    help="Local workers end by themselves after so many seconds without a task; 0: never.",
)  # fmt: skip
@click.option(
    "--hook-timeout", "hook_s", default=HOOK_S, show_default=True, metavar="S",
    help="The longest run of a command.",
)  # fmt: skip
@click.option(
    "--boot", "boot_s", default=BOOT_S, show_default=True, metavar="S",
    help="Without --count, how long a started worker counts without a heartbeat.",
)  # fmt: skip
@click.option(
    "--name", default="default", show_default=True,
    help="Of several provisioners of an app with one name, one acts.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Report the decisions, and start and stop nothing.")
@click.option("--plot", "picture", metavar="FILE", help="At the end, draw tasks and slots.")
@click.option("--metrics", metavar="HOST:PORT", help="Serve metrics for Prometheus.")
@options.everywhere
def provision(
    app: str, location: str | None, start: str | None, stop: str | None, count: str | None,
    queues: tuple[str, ...], slots_per_worker: int, picture: str | None, metrics: str | None,
    name: str, dry_run: bool, **given: Any,
) -> None:  # fmt: skip
    """Start and stop workers of an app as its load asks, until SIGTERM or Ctrl-C.

    Two rules ask for slots: growth of the queues, and the time to empty the queues at the measured
    rate of a slot. With --json each interval is one line.

    \b
    Examples:
      weft provision shop --worker shop.tasks:app --max 8
      weft provision shop --start 'sbatch -a 1-$WEFT_WORKERS worker.sh' --max 64
      weft provision shop --worker shop.tasks:app --dry-run --json
    """
    check_app_name(app)
    for queue in queues:
        check_queue(app, queue)
    arguments.check_queue_name("name", name)
    arguments.check_integer("slots-per-worker", slots_per_worker, 1, CONCURRENCY_MAX)
    policy = _policy(given)
    source = _source(app, location, (start, stop, count), queues, slots_per_worker, given)
    if picture:
        check_plot()
    reports: list[ProvisionReport] = []

    def show(report: ProvisionReport) -> None:
        reports.append(report)
        del reports[:-REPORTS_MAX]
        if options.wants_json():
            output.as_json_line(msgspec.to_builtins(report))
        else:
            click.echo(_line(report))

    with options.connect() as client:
        made = Provisioner(
            client, app, queues, policy, source, slots_per_worker=slots_per_worker, name=name,
            dry_run=dry_run, report=show,
        )  # fmt: skip
        with (
            MetricsEndpoint.of(metrics, lambda: provisioner_text(app, name, reports[-1:])),
            stopping(made.stop),
        ):
            made.run()
    if picture:
        draw_reports(reports, picture)


def _policy(given: dict[str, Any]) -> SlotPolicy:
    interval = given["interval_s"]
    drain, cooldown = given["drain_s"], given["cooldown_s"]
    return SlotPolicy(
        given["least"], given["most"], interval, given["growth"], given["step"],
        3 * interval if drain is None else drain,
        interval if cooldown is None else cooldown,
    ).checked()  # fmt: skip


def _source(
    app: str, location: str | None, commands: tuple[str | None, str | None, str | None],
    queues: tuple[str, ...], slots: int, given: dict[str, Any],
) -> WorkerSource:  # fmt: skip
    start, stop, count = commands
    if (location is None) == (start is None):
        raise InvalidArgument("pass either --worker MODULE:APP or --start COMMAND")
    for limit in ("hook_s", "boot_s", "max_idle_s"):
        arguments.check_number(limit[:-2], given[limit], 0, arguments.WAIT_S_MAX)
    if location is None:
        assert start is not None
        return CommandSource(app, start, stop, count, given["hook_s"], given["boot_s"])
    if stop is not None or count is not None:
        raise InvalidArgument("--stop and --count go with --start: --worker needs neither")
    AppLocation.parse(location)
    if (servers := options.servers()) is not None:
        os.environ["WEFT_SERVERS"] = servers  # the workers connect by themselves
    command = local_command(location, slots, queues, given["max_idle_s"], GRACE_S, "WARNING")
    return ProcessSource(command, GRACE_S)


def _line(report: ProvisionReport) -> str:
    at = time.strftime("%H:%M:%S", time.localtime(report.time))
    if report.error and not report.rule:
        return f"{at} error: {report.error}"
    acted = f" started {report.started}" if report.started else ""
    acted += f" stopped {report.stopped}" if report.stopped else ""
    return (
        f"{at} {report.ready} waiting, {report.running} at workers, {report.slots} slots, "
        f"{report.wanted} wanted ({report.rule}){acted}"
        + ("" if report.leader else "; another provisioner acts")
        + (f"; error: {report.error}" if report.error else "")
    )

"""`weft worker`: runs the tasks of an app."""

from __future__ import annotations

import logging
import os

import click

from weft.client.cli import options

from .app_location import AppLocation
from .child_process import LOG_FORMAT
from .sites.site import default_site
from .worker import run_worker
from .worker_options import COROUTINES, GRACE_S, POOLS, PROCESSES, WorkerOptions


@click.command
@click.argument("app", metavar="MODULE:APP")
@click.option(
    "-c", "--concurrency", default=1, show_default=True, help="Worker processes, or threads."
)
@click.option(
    "--pool", type=click.Choice(POOLS), default=PROCESSES, show_default=True,
    help="Where tasks run: processes, threads of one process, or this thread alone.",
)  # fmt: skip
@click.option(
    "-q", "--queue", "queues", multiple=True, metavar="NAME",
    help="A queue of the app; several times for several.  [default: the queues of all tasks]",
)  # fmt: skip
@click.option(
    "--grace", "grace_s", default=GRACE_S, show_default=True, metavar="S",
    help="After SIGTERM, how long running tasks may finish, in seconds.",
)  # fmt: skip
@click.option(
    "--max-idle", "max_idle_s", default=0.0, metavar="S",
    help="End when no task has come for so many seconds.  [default: never]",
)  # fmt: skip
@click.option(
    "--max-life", "max_life_s", default=0.0, metavar="S",
    help="Stop after so many seconds, as after SIGTERM: before a batch job or a paid hour ends.  "
    "[default: never]",
)  # fmt: skip
@click.option(
    "--coroutines", default=COROUTINES, show_default=True,
    help="Tasks at once on one event loop, for an app with async tasks.",
)  # fmt: skip
@click.option(
    "--reload", is_flag=True,
    help="For development: start the processes again when a .py file below this folder changes.",
)  # fmt: skip
@click.option(
    "--metrics", default="", metavar="HOST:PORT",
    help="Serve the worker's metrics for Prometheus, at /metrics.",
)  # fmt: skip
@click.option(
    "--ready-file", type=click.Path(dir_okay=False), default="", metavar="FILE",
    help="Write FILE when the worker takes tasks, and remove it at the end, for readiness probes.",
)  # fmt: skip
@click.option(
    "--site",
    metavar="NAME",
    help="Where the worker is, for tasks near data.  [default: the name of this machine]",
)
@click.option(
    "--spill", default="", metavar="DIR",
    help="Folder for blocks of data.  [default: WEFT_SPILL, or a folder of yours in the temporary "
    "folder]",
)  # fmt: skip
@click.option(
    "--block-address", default="", metavar="HOST[:PORT]",
    help="Where the blocks are served to other sites.  [default: the address of this machine on "
    "the way to the cluster, any port]",
)  # fmt: skip
@click.option(
    "--allow-pickle", is_flag=True,
    help="Unpickle arguments of apps with pickle=True: every submitter can then run any code here.",
)  # fmt: skip
@click.option(
    "--log-level", type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"]), default="INFO",
    show_default=True, help="The least level of the log, which goes to standard error.",
)  # fmt: skip
@options.everywhere
def worker(
    app: str,
    concurrency: int,
    pool: str,
    queues: tuple[str, ...],
    grace_s: float,
    max_idle_s: float,
    coroutines: int,
    max_life_s: float,
    reload: bool,
    metrics: str,
    ready_file: str,
    site: str | None,
    spill: str,
    block_address: str,
    allow_pickle: bool,
    log_level: str,
) -> None:
    """Run the tasks of an app until SIGTERM or Ctrl-C.

    MODULE:APP is the weft.tasks.App APP of the module MODULE, looked up in the working directory
    first. A worker process that dies, or runs a task past its time limit, is replaced, and its
    tasks run again elsewhere.

    \b
    Examples:
      weft worker shop.tasks:app -c 4
      weft worker shop.tasks:app -q slow --max-idle 60
      weft worker shop.tasks:app --site rack-7
    """
    logging.basicConfig(level=log_level, format=LOG_FORMAT)
    location = AppLocation.parse(app)
    chosen = WorkerOptions(
        concurrency, pool, list(queues), grace_s, max_idle_s, coroutines, ready_file,
        site or default_site(), os.path.abspath(spill) if spill else "", block_address,
        max_life_s, reload, metrics, allow_pickle,
    )  # fmt: skip
    servers = options.servers()
    if servers is not None:
        os.environ["WEFT_SERVERS"] = servers  # the worker processes connect by themselves
    run_worker(location, chosen, servers)

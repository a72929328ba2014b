"""`weft run`: map-reduce over files, test data, and the check of sorted output."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click
import msgspec

from weft.client.cli import failure, options, output, units
from weft.errors import TaskFailed, UsageError

from .builtin_jobs import grep as grep_job
from .builtin_jobs import sort as sort_job
from .builtin_jobs import wordcount as wordcount_job
from .data_generator import FILE_BYTES, KINDS, generate
from .data_validation import validate
from .input_split import list_input
from .job import ENGINES, PARTITION_BYTES, WEFT, MapReduce, RunSummary

F = TypeVar("F", bound=Callable[..., Any])

_FOOT: Final = """\b
Examples:
  weft run generate records in --bytes 10M
  weft run sort in out --partition-bytes 1M
  weft run validate out --against in
  weft run wordcount in words -c 4
  weft run grep in hits -e 'error|warning' --engine spark
  weft run counts:job in out              a job of your own
"""


class RunGroup(click.Group):
    """The built-in jobs, and MODULE:JOB for others."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if ":" in cmd_name:
            return _own_command(cmd_name)
        return super().get_command(ctx, cmd_name)


@click.group(cls=RunGroup, epilog=_FOOT, subcommand_metavar="JOB|MODULE:JOB IN OUT [OPTIONS]")
def run() -> None:
    """Run map-reduce over the files of a folder, on workers of Weft or on Spark.

    A job reads the lines of IN, a folder or a file, and writes files part-NNNNN to the folder OUT,
    and _SUCCESS when the output is complete. The same command continues a run that was killed. IN,
    OUT and the spill folder must be shared by all workers, if these are on several machines.
    """


def _run_options(function: F) -> F:
    for option in reversed((
        click.argument("source", metavar="IN", type=click.Path()),
        click.argument("out", metavar="OUT", type=click.Path()),
        click.option(
            "--partition-bytes", default=units.size(PARTITION_BYTES), show_default=True,
            metavar="SIZE", help="Input of one map task, such as 100K or 1M.",
        ),
        click.option(
            "--reducers", type=int, metavar="N",
            help="Output files.  [default: one for each 8 MiB of input, at most 256]",
        ),
        click.option(
            "--engine", type=click.Choice(ENGINES), default=WEFT, show_default=True,
            help="The output is the same.",
        ),
        click.option(
            "-c", "--concurrency", type=int, metavar="N",
            help="Worker processes that the run starts on this machine; 0: use the workers of the "
            "app that run already.  [default: one for each core]",
        ),
        click.option(
            "--transfer", is_flag=True,
            help="The workers share no files with this machine: send them the input, and fetch the "
            "output, over block servers.",
        ),
        click.option(
            "--block-address", default="", metavar="HOST[:PORT]",
            help="Where this machine serves the input with --transfer.  [default: its address on "
            "the way to the cluster, any port]",
        ),
        click.option(
            "--master",
            metavar="URL",
            help="Spark's master, for --engine spark.  [default: local[*]]",
        ),
        click.option(
            "--spill", type=click.Path(), metavar="DIR",
            help="A folder for the files between map and reduce.  [default: in OUT]",
        ),
        click.option(
            "--overwrite", is_flag=True, help="Replace the output of an earlier run in OUT."
        ),
        options.everywhere,
    )):  # fmt: skip
        function = option(function)
    return function


@run.command()
@_run_options
def sort(source: str, out: str, **given: Any) -> None:
    """Sort lines by their bytes. The files of OUT, in order, are the sorted lines.

    \b
    Examples:
      weft run sort in out --partition-bytes 1M
    """
    _run(sort_job, source, out, given)


@run.command()
@_run_options
def wordcount(source: str, out: str, **given: Any) -> None:
    """Count words, which are separated by white space: lines of word, tab, count.

    \b
    Examples:
      weft run wordcount in out -c 4
    """
    _run(wordcount_job, source, out, given)


@run.command()
@click.option(
    "-e", "--pattern", required=True,
    help="A text, or a regular expression of Python, matched against the bytes of each line.",
)  # fmt: skip
@_run_options
def grep(source: str, out: str, pattern: str, **given: Any) -> None:
    """Copy the lines that match a pattern, in the order of the input.

    \b
    Examples:
      weft run grep in out -e 'error|warning'
    """
    _run(grep_job, source, out, given, pattern)


def _own_command(name: str) -> click.Command:
    """The command of a job in a module of the user."""

    @click.command(name)
    @_run_options
    def own(source: str, out: str, **given: Any) -> None:
        _run(_own_job(name), source, out, given)

    own.help = f"Run the job {name}."
    return own


def _own_job(name: str) -> MapReduce:
    module, _, attribute = name.partition(":")
    folder = os.getcwd()
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ModuleNotFoundError as error:
        raise UsageError(f"the module {module} cannot be imported: {error}") from error
    if not isinstance(found, MapReduce):
        what = "is missing" if found is None else f"is a {type(found).__name__}"
        raise UsageError(f"{name} {what}: it must be a weft.tasks.mapreduce.MapReduce")
    return found


def _run(job: MapReduce, source: str, out: str, given: dict[str, Any], *more: str) -> None:
    servers = options.servers()
    list_input(source)
    if given["engine"] == WEFT:
        options.connect().close()  # fails soon if there is no cluster
    if servers is not None:
        job.app.connect(servers)
    given["workers"] = given.pop("concurrency")
    given["progress"] = sys.stderr.isatty() and not options.wants_json()
    try:
        summary: RunSummary = job.run(source, out, *more, **given)
    except TaskFailed as error:
        if error.trace and not options.wants_json():
            click.echo(error.trace.rstrip(), err=True)
        raise
    finally:
        job.app.close()
    if options.wants_json():
        output.as_json(msgspec.to_builtins(summary))
        return
    rate = units.size(summary.input_bytes / max(summary.seconds, 1e-3))
    output.facts(
        [
            ("input", f"{units.count(summary.input_lines)} lines, "
             f"{units.size(summary.input_bytes)}"),
            ("output", f"{units.count(summary.output_lines)} lines, "
             f"{units.size(summary.output_bytes)} in {summary.reducers} files"),
            ("partitions", units.count(summary.partitions)),
            ("time", f"{summary.seconds:.1f} s, {rate} per second on {summary.engine}"),
            *([("repaired", f"{summary.repaired} map tasks")] if summary.repaired else []),
            *([("resumed", "a run whose driver had ended")] if summary.resumed else []),
        ],
        f"{summary.job}: {summary.output}",
    )  # fmt: skip


@run.command("generate")
@click.argument("kind", type=click.Choice(KINDS))
@click.argument("out", metavar="OUT", type=click.Path())
@click.option("--bytes", "size", required=True, metavar="SIZE", help="Altogether, such as 10M.")
@click.option("--seed", default=1, show_default=True, help="The same seed makes the same data.")
@click.option(
    "--file-bytes", default=units.size(FILE_BYTES), show_default=True, metavar="SIZE",
    help="A file is ended after so many bytes.",
)  # fmt: skip
@options.everywhere
def generate_(kind: str, out: str, size: str, seed: int, file_bytes: str) -> None:
    """Write test data: text, or records of 100 bytes with a random key.

    Lines, bytes and an order-independent checksum are printed, and written to _generated.json.

    \b
    Examples:
      weft run generate records in --bytes 10M --seed 1
    """
    check = generate(kind, out, size=size, seed=seed, file_bytes=file_bytes)
    if options.wants_json():
        output.as_json(msgspec.to_builtins(check))
    else:
        click.echo(f"{units.count(check.lines)} lines, {units.count(check.bytes)} bytes, "
                   f"checksum {check.checksum:016x}")  # fmt: skip


@run.command("validate")
@click.argument("out", metavar="OUT", type=click.Path())
@click.option(
    "--against", metavar="IN", type=click.Path(),
    help="Compare lines, bytes and checksum with the input.",
)  # fmt: skip
@options.everywhere
def validate_(out: str, against: str | None) -> None:
    """Check that the lines of OUT are sorted, and complete. Exit code 1 if they are not.

    \b
    Examples:
      weft run validate out --against in
    """
    found = validate(out, against=against)
    if options.wants_json():
        output.as_json(msgspec.to_builtins(found))
    else:
        complete = {None: "not compared", True: "yes", False: "no"}[found.complete]
        output.facts([
            ("sorted", f"no: {found.disorder}" if found.disorder else "yes"),
            ("complete", complete),
            ("lines", units.count(found.lines)),
            ("bytes", units.count(found.bytes)),
            ("checksum", f"{found.checksum:016x}"),
        ])  # fmt: skip
    if not found.sorted or found.complete is False:
        raise failure.CommandFailed

"""``weft backup`` and ``weft restore``: a running cluster, or some queues, to a file and back.

What a backup promises stands in ``weft.client.backup.create``, how one is put back in ``restore``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from weft.errors import InvalidArgument

from . import options, output
from .options import QUEUE_NAME

if TYPE_CHECKING:
    from weft.client.backup.file import End
    from weft.client.backup.restore import Contents

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command
@click.argument("file", type=_FILE)
@click.option(
    "--queue", "queues", multiple=True, type=QUEUE_NAME,
    help="Only this queue, or these.  [default: the whole cluster, with its hash table]",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace FILE if it is there.")
@options.everywhere
def backup(file: Path, queues: tuple[str, ...], force: bool) -> None:
    """Copy messages, queues and table to FILE, while the cluster works on.

    Every message that was acknowledged before the start, and is not acked when it is read, is in
    it, with its delivery count, delay, headers, and reason if it is a dead letter; what is lent
    counts as waiting. FILE appears when it is whole. It holds the messages in the clear.

    \b
    Examples:
      weft backup all.weft
      weft backup orders.weft --queue orders --queue orders.dead
    """
    from weft.client.backup.create import take
    from weft.client.transport.link import run

    if file.exists() and not force:
        raise InvalidArgument(f"{file} is there already: name another file, or --force")
    with options.connect() as client, _progress("reading partitions") as show:

        def progress(done: int, total: int, messages: int) -> None:
            show(done, total, f"{messages:,} messages")

        end = run(take(client._session, file, list(queues) or None, progress))
    if options.wants_json():
        output.as_json({"file": str(file), "bytes": file.stat().st_size} | _end(end))
        return
    click.echo(
        f"{end.messages} messages of {end.queues} queues and {end.rows} table rows are in {file} "
        f"({file.stat().st_size} bytes)"
    )


@click.command
@click.argument("file", type=_FILE)
@click.option("--check", is_flag=True, help="Only check FILE and say what it has.")
@click.option(
    "--queue", "queues", multiple=True, type=QUEUE_NAME,
    help="Only this queue, or these.  [default: all of FILE]",
)  # fmt: skip
@click.option(
    "--into", type=QUEUE_NAME, metavar="NAME",
    help="Copy the messages of the one --queue into this queue, which is created if needed.",
)  # fmt: skip
@click.option(
    "--again", is_flag=True,
    help="Restore every message of FILE, even those that are still there or were acknowledged.",
)  # fmt: skip
@options.everywhere
def restore(
    file: Path, check: bool, queues: tuple[str, ...], into: str | None, again: bool
) -> None:
    """Restore queues from the backup FILE: undo a purge, or copy them to another cluster.

    Into the cluster that FILE was taken of, only messages that a purge or a delete removed since
    are put back; those that are still there, or were acknowledged after the backup, are skipped and
    counted. Into any other cluster every message of FILE is restored.

    FILE is checked from end to end before anything is changed. Queues that do not exist are
    created. An interrupted restore continues when it is run again; a repeated one changes nothing.
    Keys of the hash table that exist keep their values.

    \b
    Examples:
      weft restore all.weft --check
      weft restore all.weft --queue orders
      weft restore all.weft --queue orders --into orders.copy
      weft restore all.weft --servers 10.0.0.7:7700
    """
    from weft.client.backup.restore import Selection, look, put_back
    from weft.client.transport.link import run

    contents = look(file)
    selection = Selection(frozenset(queues) or None, into, again)
    selection.check(file, contents)
    if check:
        _describe(file, contents)
        return
    with options.connect() as client, _progress("restoring") as show:

        def progress(done: int, total: int) -> None:
            show(done, total, f"{done:,} of {total:,}")

        done = run(put_back(client._session, file, contents, selection, progress))
    if options.wants_json():
        output.as_json(asdict(done))
        return
    click.echo(
        f"restored: {done.messages} messages in {done.batches} batches, {done.rows} table rows; "
        f"queues created: {done.queues_made}"
    )
    if done.messages_skipped and done.mode == "undo":
        click.echo(
            f"skipped: {done.messages_skipped} messages that were not purged: they are still in "
            "the cluster, were restored before, or were acknowledged after the backup"
        )
    elif done.messages_skipped:
        click.echo(
            f"skipped: {done.messages_skipped} messages that this cluster has restored before"
        )
    if done.rows_kept:
        click.echo(f"skipped: {done.rows_kept} table rows, because the keys exist")


def _describe(file: Path, contents: Contents) -> None:
    start, end = contents.start, contents.end
    if options.wants_json():
        said: dict[str, Any] = _end(end) | {
            "id": start.id.hex(), "weft": start.weft, "cluster": start.cluster,
            "started": start.started, "queues": sorted(contents.queues), "file": str(file),
        }  # fmt: skip
        output.as_json(said)
        return
    output.facts(
        [
            ("made", f"{start.started} to {end.ended}, by Weft {start.weft}"),
            ("of", f"cluster {start.cluster}" + ("" if start.asked is None else ", some queues")),
            ("queues", ", ".join(sorted(contents.queues)) or "none"),
            ("messages", f"{end.messages}, in {end.batches} batches"),
            ("table rows", f"{end.rows}"),
        ],
        f"{file}: a whole backup, all checksums match",
    )


def _end(end: End) -> dict[str, Any]:
    return msgspec.structs.asdict(end)


@contextmanager
def _progress(text: str) -> Iterator[Any]:
    """A bar on a terminal's standard error; silent everywhere else."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[figure]}"),
        TimeElapsedColumn(), console=Console(stderr=True), transient=True,
        disable=not sys.stderr.isatty(),
    ) as shown:  # fmt: skip
        task = shown.add_task(text, total=None, figure="")

        def show(done: int, total: int, figure: str) -> None:
            shown.update(task, completed=done, total=total, figure=figure)

        yield show

"""``weft backup`` and ``weft restore``: copy a running cluster, or some queues, to a file and back.

``weft.client.backup.create`` states the guarantees of a backup; ``weft.client.backup.restore``
states those of a restore.
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
    help="Back up only this queue; repeatable.  [default: the whole cluster and its hash table]",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite FILE if it exists.")
@options.everywhere
def backup(file: Path, queues: tuple[str, ...], force: bool) -> None:
    """Copy messages, queues, topics and the hash table of a running cluster to FILE.

    FILE contains every message that was stored before the backup started and is not acked when its
    partition is read, with delivery count, delay, headers, and the reason of a dead letter. Leased
    messages are stored as waiting. FILE appears when it is complete. Messages in FILE are not
    encrypted.

    \b
    Examples:
      weft backup all.weft
      weft backup orders.weft --queue orders --queue orders.dead
    """
    from weft.client.backup.create import take
    from weft.client.transport.blocking_link import run

    if file.exists() and not force:
        raise InvalidArgument(f"{file} exists: choose another file, or pass --force to overwrite")
    with options.connect() as client, _progress("reading partitions") as show:

        def progress(done: int, total: int, messages: int) -> None:
            show(done, total, f"{messages:,} messages")

        end = run(take(client._session, file, list(queues) or None, progress))
    if options.wants_json():
        output.as_json({"file": str(file), "bytes": file.stat().st_size} | _end(end))
        return
    click.echo(
        f"backed up {end.messages} messages of {end.queues} queues, {end.topics} topics and "
        f"{end.rows} table rows to {file} ({file.stat().st_size} bytes)"
    )


@click.command
@click.argument("file", type=_FILE)
@click.option("--check", is_flag=True, help="Only check FILE and print its contents.")
@click.option(
    "--queue", "queues", multiple=True, type=QUEUE_NAME,
    help="Restore only this queue; repeatable.  [default: all queues of FILE]",
)  # fmt: skip
@click.option(
    "--into", type=QUEUE_NAME, metavar="NAME",
    help="Copy the messages of the one --queue into this queue, which is created if needed.",
)  # fmt: skip
@click.option(
    "--again", is_flag=True,
    help="Restore every message of FILE, also messages that still exist or were acked.",
)  # fmt: skip
@options.everywhere
def restore(
    file: Path, check: bool, queues: tuple[str, ...], into: str | None, again: bool
) -> None:
    """Restore queues from the backup FILE: undo a purge, or copy them to another cluster.

    In the cluster of the backup, the command restores only messages that a purge or a delete has
    removed since; messages that still exist, or were acked after the backup, are skipped and
    counted. In any other cluster the command restores every message of FILE.

    The whole FILE is checked before any change. Missing queues are created. An interrupted restore
    continues on the next run; a repeated restore changes nothing. Existing keys of the hash table
    keep their values. Topics come back with the whole FILE, not with --queue: missing topics are
    created and missing queues bound; a bound queue keeps its filter.

    \b
    Examples:
      weft restore all.weft --check
      weft restore all.weft --queue orders
      weft restore all.weft --queue orders --into orders.copy
      weft restore all.weft --servers 10.0.0.7:7700
    """
    from weft.client.backup.restore import Selection, check_file, put_back
    from weft.client.transport.blocking_link import run

    contents = check_file(file)
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
    if done.topics_made or done.bindings_made:
        click.echo(f"topics created: {done.topics_made}; queues bound: {done.bindings_made}")
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
            "topics": sorted(each.name for each in contents.topics),
        }  # fmt: skip
        output.as_json(said)
        return
    output.facts(
        [
            ("made", f"{start.started} to {end.ended}, by Weft {start.weft}"),
            ("of", f"cluster {start.cluster}" + ("" if start.asked is None else ", some queues")),
            ("queues", ", ".join(sorted(contents.queues)) or "none"),
            ("topics", ", ".join(sorted(each.name for each in contents.topics)) or "none"),
            ("messages", f"{end.messages}, in {end.batches} batches"),
            ("table rows", f"{end.rows}"),
        ],
        f"{file}: a complete backup, all checksums match",
    )


def _end(end: End) -> dict[str, Any]:
    return msgspec.structs.asdict(end)


@contextmanager
def _progress(text: str) -> Iterator[Any]:
    """A progress bar if standard error is a terminal; no output otherwise."""
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

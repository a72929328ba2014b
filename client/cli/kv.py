"""`weft kv`: the operations on the hash table, as `client.kv`."""

from __future__ import annotations

import os
import sys
from typing import Final

import click

from weft import limits
from weft.client.kv_entry import KvChange

from . import options, output
from .failure import CommandFailed

_IF_VERSION: Final = click.option(
    "--if-version",
    type=click.IntRange(0, limits.NUMBER_MAX),
    help="Fail unless the key has this version; 0 stands for an absent key.",
)


@click.group
def kv() -> None:
    """Read and write the cluster's hash table.

    \b
    Example:
      weft kv insert colour blue
    """


@kv.command
@click.argument("key")
@click.argument("value")
@click.option(
    "--ttl-ms",
    type=click.IntRange(1, limits.TABLE_TTL_MS_MAX),
    help="Let the key expire after so many milliseconds.",
)
@_IF_VERSION
@options.everywhere
def insert(key: str, value: str, ttl_ms: int | None, if_version: int | None) -> None:
    """Set the value of a key; with - as VALUE, read the value from stdin.

    \b
    Examples:
      weft kv insert colour blue
      weft kv insert session/7 anna --ttl-ms 60000
      weft kv insert leader node-1 --if-version 0
    """
    with options.connect() as client:
        version = client.kv.insert(key, _bytes(value), ttl_ms=ttl_ms, if_version=if_version)
    if options.wants_json():
        output.as_json({"key": key, "inserted": True, "version": version})


@kv.command
@click.argument("key")
@options.everywhere
def lookup(key: str) -> None:
    """Print the value of a key, byte for byte; exit code 1 if the key is absent.

    \b
    Example:
      weft kv lookup colour
    """
    with options.connect() as client:
        entry = client.kv.lookup_entry(key)
    value = None if entry is None else entry.value
    if options.wants_json():
        version = 0 if entry is None else entry.version
        output.as_json({"key": key, **output.bytes_field("value", value), "version": version})
    elif value is not None:
        # A file or pipe gets exactly the value; only a terminal gets a newline in addition.
        sys.stdout.buffer.write(value + b"\n" if sys.stdout.isatty() else value)
        sys.stdout.flush()
    else:
        click.echo(f"the key {key} is absent", err=True)
    if value is None:
        raise CommandFailed


@kv.command
@click.argument("key")
@_IF_VERSION
@options.everywhere
def remove(key: str, if_version: int | None) -> None:
    """Remove a key; exit code 1 if the key is absent.

    \b
    Example:
      weft kv remove colour
    """
    with options.connect() as client:
        removed = client.kv.remove(key, if_version=if_version)
    if options.wants_json():
        output.as_json({"key": key, "removed": removed})
    elif not removed:
        click.echo(f"the key {key} is absent", err=True)
    if not removed:
        raise CommandFailed


@kv.command
@click.argument("key")
@click.argument("value")
@options.everywhere
def append(key: str, value: str) -> None:
    """Append to the value of a key and print the new length in bytes; - reads from stdin.

    \b
    Example:
      weft kv append visitors 'anna,'
    """
    with options.connect() as client:
        length = client.kv.append(key, _bytes(value))
    if options.wants_json():
        output.as_json({"key": key, "length": length})
    else:
        click.echo(str(length))


@kv.command
@click.argument("key")
@click.option("--old", help="Swap only if this is the current value.")
@click.option("--absent", is_flag=True, help="Swap only if the key is absent.")
@click.option("--new", help="The new value.")
@click.option("--remove", "remove_it", is_flag=True, help="Remove the key instead of a new value.")
@options.everywhere
def cas(key: str, old: str | None, absent: bool, new: str | None, remove_it: bool) -> None:
    """Compare and swap; on a mismatch, print the current value and exit with code 1.

    \b
    Examples:
      weft kv cas leader --absent --new node-1
      weft kv cas leader --old node-1 --new node-2
      weft kv cas leader --old node-2 --remove
    """
    if (old is None) != absent:
        raise click.UsageError("Pass exactly one of --old TEXT and --absent.")
    if (new is None) != remove_it:
        raise click.UsageError("Pass exactly one of --new TEXT and --remove.")
    with options.connect() as client:
        swap = client.kv.compare_and_swap(
            key,
            None if old is None else os.fsencode(old),
            None if new is None else os.fsencode(new),
        )
    if options.wants_json():
        shown = output.bytes_field("current", swap.current)
        output.as_json({"key": key, "swapped": swap.swapped, **shown})
    elif not swap.swapped:
        state = "absent" if swap.current is None else output.preview(swap.current)
        click.echo(f"not swapped: the value of {key} is {state}", err=True)
    if not swap.swapped:
        raise CommandFailed


@kv.command
@click.argument("prefix", default="")
@click.option(
    "--limit",
    type=click.IntRange(1, limits.TABLE_SCAN_MAX),
    default=limits.TABLE_SCAN_DEFAULT,
    show_default=True,
    help="Keys of the page.",
)
@click.option("--after", default="", help="Begin after this key: the next page of a scan.")
@options.everywhere
def scan(prefix: str, limit: int, after: str) -> None:
    """List keys that begin with PREFIX, in order, with a preview of their values.

    \b
    Examples:
      weft kv scan session/
      weft kv scan --limit 100 --after session/17
    """
    with options.connect() as client:
        page = client.kv.scan(prefix, limit=limit, after=after)
    if options.wants_json():
        entries = [
            {"key": e.key, **output.bytes_field("value", e.value), "version": e.version}
            for e in page
        ]
        output.as_json({"entries": entries, "after": page.after, "more": page.more})
        return
    for entry in page:
        click.echo(f"{entry.key}\t{output.preview(entry.value)}")
    if page.more:
        click.echo(f"there are more keys: repeat with --after {page.after!r}", err=True)


@kv.command
@click.argument("prefix", default="")
@click.option("--key", help="Watch this key alone, instead of a prefix.")
@click.option("--limit", type=click.IntRange(1), help="End after so many changes.")
@options.everywhere
def watch(prefix: str, key: str | None, limit: int | None) -> None:
    """Print changes of keys that begin with PREFIX as they are committed, until interrupted.

    \b
    Examples:
      weft kv watch session/
      weft kv watch --key leader --limit 1 --json
    """
    with options.connect() as client, client.kv.watch(prefix, key=key) as changes:
        for number, change in enumerate(changes, 1):
            _show(change)
            if number == limit:
                return


def _show(change: KvChange) -> None:
    if options.wants_json():
        value = output.bytes_field("value", change.value)
        shown = {"key": change.key, **value, "version": change.version, "resync": change.resync}
        output.as_json(shown)
    elif change.resync:
        click.echo("resync: changes may be missing, scan the keys again", err=True)
    else:
        value_text = "removed" if change.value is None else output.preview(change.value)
        click.echo(f"{change.key}\t{value_text}")
    sys.stdout.flush()


def _bytes(value: str) -> bytes:
    """The argument's bytes; for -, standard input up to one byte over the limit."""
    if value != "-":
        return os.fsencode(value)
    return sys.stdin.buffer.read(limits.TABLE_VALUE_BYTES_MAX + 1)

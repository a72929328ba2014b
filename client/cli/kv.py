"""`weft kv`: ZHT's verbs on the cluster's hash table."""

from __future__ import annotations

import os
import sys

import click

from weft import limits

from . import options, output
from .failure import CommandFailed


@click.group
def kv() -> None:
    """Read and write the cluster's hash table."""


@kv.command
@click.argument("key")
@click.argument("value")
@options.everywhere
def insert(key: str, value: str) -> None:
    """Set a key's value; - reads it from stdin.

    \b
    Example:
      weft kv insert colour blue
    """
    with options.connect() as client:
        client.kv.insert(key, _bytes(value))
    if options.wants_json():
        output.as_json({"key": key, "inserted": True})


@kv.command
@click.argument("key")
@options.everywhere
def lookup(key: str) -> None:
    """Print a key's value, byte for byte; exit code 1 when there is none.

    \b
    Example:
      weft kv lookup colour
    """
    with options.connect() as client:
        value = client.kv.lookup(key)
    if options.wants_json():
        output.as_json({"key": key, **output.bytes_field("value", value)})
    elif value is not None:
        # A newline would be one byte too many for a file, and is missed on a terminal.
        sys.stdout.buffer.write(value + b"\n" if sys.stdout.isatty() else value)
        sys.stdout.flush()
    else:
        click.echo(f"there is no value under {key}", err=True)
    if value is None:
        raise CommandFailed


@kv.command
@click.argument("key")
@options.everywhere
def remove(key: str) -> None:
    """Remove a key; exit code 1 when there is none.

    \b
    Example:
      weft kv remove colour
    """
    with options.connect() as client:
        removed = client.kv.remove(key)
    if options.wants_json():
        output.as_json({"key": key, "removed": removed})
    elif not removed:
        click.echo(f"there is no value under {key}", err=True)
    if not removed:
        raise CommandFailed


@kv.command
@click.argument("key")
@click.argument("value")
@options.everywhere
def append(key: str, value: str) -> None:
    """Add to the end of a key's value and print the new length; - reads from stdin.

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
@click.option("--old", help="Swap only if this stands there.")
@click.option("--absent", is_flag=True, help="Swap only if nothing stands there.")
@click.option("--new", help="What is to stand there.")
@click.option("--remove", "remove_it", is_flag=True, help="Nothing is to stand there.")
@options.everywhere
def cas(key: str, old: str | None, absent: bool, new: str | None, remove_it: bool) -> None:
    """Compare and swap; exit code 1, and the value that stands there, when it does not match.

    \b
    Examples:
      weft kv cas leader --absent --new node-1
      weft kv cas leader --old node-1 --new node-2
      weft kv cas leader --old node-2 --remove
    """
    if (old is None) != absent:
        raise click.UsageError("Give one of --old TEXT and --absent.")
    if (new is None) != remove_it:
        raise click.UsageError("Give one of --new TEXT and --remove.")
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
        stands = "nothing" if swap.current is None else output.preview(swap.current)
        click.echo(f"not swapped: {stands} stands under {key}", err=True)
    if not swap.swapped:
        raise CommandFailed


def _bytes(value: str) -> bytes:
    """The argument as it was typed, or what stdin holds."""
    if value != "-":
        return os.fsencode(value)
    return sys.stdin.buffer.read(limits.TABLE_VALUE_BYTES_MAX + 1)

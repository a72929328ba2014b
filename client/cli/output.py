"""Standard output of commands: JSON with --json, tables on a terminal, plain columns in a pipe."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Sequence
from typing import Any

import click

Row = Sequence[str]


def as_json(what: Any) -> None:
    """Prints one indented JSON document."""
    click.echo(json.dumps(what, indent=2, ensure_ascii=False))


def as_json_line(what: Any) -> None:
    click.echo(json.dumps(what, ensure_ascii=False))


def bytes_field(name: str, value: bytes | None) -> dict[str, str | None]:
    """Bytes as a JSON field: UTF-8 text under ``name``, otherwise base64 under ``name_base64``."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def preview(value: bytes, width: int = 60) -> str:
    """Bytes as one printable line of at most ``width`` characters, without control characters."""
    text = value[: 4 * width].decode(errors="replace")
    line = "".join(letter if letter.isprintable() else "·" for letter in text)
    return line if len(line) <= width else line[: width - 1] + "…"


def table(columns: Row, rows: Sequence[Row], *, right: Sequence[str] = ()) -> None:
    """Prints rows under headings; the columns named in ``right`` are aligned right."""
    if sys.stdout.isatty():
        _rich_table(columns, rows, right)
        return
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        cells = [
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(columns, row, widths, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def facts(rows: Sequence[tuple[str, str]], title: str = "") -> None:
    """Prints name and value pairs, one per line, under an optional title."""
    if title:
        click.secho(title, bold=True)
    width = max((len(name) for name, _ in rows), default=0)
    for name, value in rows:
        click.echo(f"{name.ljust(width)}  {value}".rstrip())


def _rich_table(columns: Row, rows: Sequence[Row], right: Sequence[str]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        drawn.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*map(Text, row))  # Text: a body may look like markup.
    Console().print(drawn)

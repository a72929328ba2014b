"""Error output of commands: an `error:` line, a `try:` line with advice, and an exit code.

| exit code | meaning |
|---|---|
| 0 | success |
| 1 | the operation failed |
| 2 | invalid usage, or a required package is not installed |
| 3 | no message (`weft pop` on an empty queue, `weft cancel` of an absent message, `weft reply`) |
| 130 | interrupted by Ctrl-C |

Errors that Weft raises on purpose never print a traceback.
"""

from __future__ import annotations

import json
from typing import Final

import click

from weft.errors import InvalidArgument, MissingExtra, WeftError

from .advice import TRY

FAILED: Final = 1
USAGE: Final = 2
NOTHING_THERE: Final = 3
INTERRUPTED: Final = 130


class CommandFailed(Exception):
    """The command printed a complete, negative result; exit with code 1 and no error line."""


def show(error: WeftError, *, as_json: bool) -> int:
    """Prints the error and returns the exit code."""
    if as_json:
        show_json(error.code, error.message, retriable=error.retriable)
    else:
        click.echo(f"error: {error.message}", err=True)
        click.echo(f"try: {TRY[error.code]}", err=True)
    return USAGE if isinstance(error, InvalidArgument | MissingExtra) else FAILED


def show_os(error: OSError, *, as_json: bool) -> int:
    """Prints an error of the local file system, with the file's name if the system reports one."""
    where = f"{error.filename}: " if error.filename else ""
    return show(WeftError(f"{where}{error.strerror or error}"), as_json=as_json)


def show_usage(error: click.ClickException, *, as_json: bool) -> int:
    """Prints an error that click raised while parsing the command line."""
    if as_json:
        show_json("USAGE", error.format_message(), retriable=False)
    else:
        error.show()
    return error.exit_code


def show_json(code: str, message: str, *, retriable: bool) -> None:
    what = {"error": {"code": code, "message": message, "retriable": retriable}}
    click.echo(json.dumps(what, ensure_ascii=False), err=True)

"""How a command ends badly: one error line, one line that says what to do, and an exit code.

0 is success, 1 an operation that failed, 2 a command that was not understood or cannot run with
what is installed, 3 that there was nothing (`weft pop` on an empty queue), 130 an interrupt. Never
a traceback for an error that Weft raises on purpose.
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
    """The command did its work and the answer is no: its output is printed, the exit code is 1."""


def show(error: WeftError, *, as_json: bool) -> int:
    """Prints the error; gives the exit code."""
    if as_json:
        show_json(error.code, error.message, retriable=error.retriable)
    else:
        click.echo(f"error: {error.message}", err=True)
        click.echo(f"try: {TRY[error.code]}", err=True)
    return USAGE if isinstance(error, InvalidArgument | MissingExtra) else FAILED


def show_os(error: OSError, *, as_json: bool) -> int:
    """A file or a disk of this machine: the system says what, and usually where."""
    where = f"{error.filename}: " if error.filename else ""
    return show(WeftError(f"{where}{error.strerror or error}"), as_json=as_json)


def show_usage(error: click.ClickException, *, as_json: bool) -> int:
    """The same for what click itself refuses."""
    if as_json:
        show_json("USAGE", error.format_message(), retriable=False)
    else:
        error.show()
    return error.exit_code


def show_json(code: str, message: str, *, retriable: bool) -> None:
    what = {"error": {"code": code, "message": message, "retriable": retriable}}
    click.echo(json.dumps(what, ensure_ascii=False), err=True)

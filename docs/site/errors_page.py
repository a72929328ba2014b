"""The page of error codes, from `weft/errors.py` and the table of gRPC statuses."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from weft.errors import WeftError
from weft.server.edges.grpc_code import CODES

from .markdown import code, page, table

INTRODUCTION = """\
Every error that Weft raises is a `weft.WeftError`. Its class attribute `code` is the same word on
the wire, in the trailing metadata `weft-code` of a gRPC call, and in the output of `--json`.
`retriable` says if the same call may succeed when the caller repeats it unchanged (trailing
metadata `weft-retriable`). An `except` clause for a class also catches the classes below it.
[Python: errors](python/errors.md) documents the classes."""


def render() -> str:
    head = ("class", "subclass of", "code", "retriable", "gRPC status", "meaning")
    source = "weft/errors.py and server/edges/grpc_code.py"
    return page("Error codes", source, [INTRODUCTION, table(head, _rows(WeftError))])


def _rows(error: type[WeftError]) -> Iterator[tuple[str, ...]]:
    """The rows of a class and of all its subclasses, in the order of their definition."""
    parent = error.__bases__[0].__name__
    meaning = " ".join((inspect.getdoc(error) or "").split("\n\n")[0].split())
    retriable = "yes" if error.retriable else "no"
    status = CODES[error.code].name
    yield code(error.__name__), code(parent), code(error.code), retriable, code(status), meaning
    for child in error.__subclasses__():
        if child.__module__ == WeftError.__module__:
            yield from _rows(child)

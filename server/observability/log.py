"""Logs: one line per fact, on stderr, as text for people or as JSON for machines.

The fact is the message, a constant; variable values go into fields::

    log = logging.getLogger(__name__)
    log.info("serving", extra=fields(grpc="127.0.0.1:7700", queues=3))

Message bodies, headers and keys are never logged: they belong to the users, and logs are stored in
other places and read by other people than queues.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Mapping
from typing import TextIO

#: Attribute of a log record that holds the mapping of `fields`.
_FIELDS = "weft_fields"
_ROOT = "weft"

Field = str | int | float | bool | None


def fields(**values: Field) -> Mapping[str, object]:
    """The variable values of a log line, for the ``extra`` of a logging call."""
    return {_FIELDS: values}


def configure(level: str, log_format: str, stream: TextIO | None = None) -> None:
    """Sends all log lines of Weft to ``stream`` (stderr); a second call replaces the handler."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logger = logging.getLogger(_ROOT)
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


class TextFormatter(logging.Formatter):
    """``2026-01-31T12:00:00.123Z info  server.serve: serving grpc=127.0.0.1:7700``"""

    def format(self, record: logging.LogRecord) -> str:
        pairs = "".join(f" {key}={_plain(value)}" for key, value in _fields_of(record).items())
        line = (
            f"{_time(record)} {record.levelname.lower():7} {_where(record)}: "
            f"{record.getMessage()}{pairs}"
        )
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One object per line; the fields are beside ``time``, ``level``, ``where`` and ``message``."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            **_fields_of(record),
            "time": _time(record),
            "level": record.levelname.lower(),
            "where": _where(record),
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


def _fields_of(record: logging.LogRecord) -> dict[str, Field]:
    found = getattr(record, _FIELDS, {})
    assert isinstance(found, dict), "log fields are made with fields()"
    return found


def _time(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def _where(record: logging.LogRecord) -> str:
    return record.name.removeprefix(_ROOT + ".")


def _plain(value: Field) -> str:
    """Formats one value unambiguously: quoted if the text holds spaces, quotes or '='."""
    text = str(value)
    plain = text and text.isprintable() and not any(mark in text for mark in ' "=')
    return text if plain else json.dumps(text, ensure_ascii=False)

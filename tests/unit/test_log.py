"""A log line is one fact with its fields, in either shape."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from weft.server.observability.log import configure, fields

log = logging.getLogger("weft.server.somewhere")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    logger = logging.getLogger("weft")
    before = logger.handlers[:], logger.level, logger.propagate
    yield io.StringIO()
    logger.handlers[:], logger.level, logger.propagate = before


def test_text(stream: io.StringIO) -> None:
    configure("info", "text", stream)
    log.info("serving", extra=fields(port=7700, path="/a b", empty="", quoted='"', none=None))
    time, line = stream.getvalue().split("Z ")
    assert time.startswith("20")
    assert line == (
        'info    server.somewhere: serving port=7700 path="/a b" empty="" quoted="\\"" none=None\n'
    )


def test_a_line_break_cannot_make_a_second_line(stream: io.StringIO) -> None:
    configure("info", "text", stream)
    log.info("said", extra=fields(text="one\ntwo"))
    assert stream.getvalue().count("\n") == 1


def test_json(stream: io.StringIO) -> None:
    configure("info", "json", stream)
    log.warning("serving", extra=fields(port=7700, message="a field cannot hide the message"))
    entry = json.loads(stream.getvalue())
    assert entry.pop("time").endswith("Z")
    assert entry == {
        "level": "warning", "where": "server.somewhere", "message": "serving", "port": 7700
    }  # fmt: skip


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_traceback_is_kept(stream: io.StringIO, log_format: str) -> None:
    configure("info", log_format, stream)
    try:
        raise ValueError("the reason")
    except ValueError:
        log.exception("failed")
    assert "ValueError: the reason" in stream.getvalue()


def test_level_and_again(stream: io.StringIO) -> None:
    configure("info", "text", stream)
    configure("error", "text", stream)
    log.warning("not this")
    log.error("this")
    assert stream.getvalue().count("\n") == 1

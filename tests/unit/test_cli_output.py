"""The command's output: bytes in JSON, figures for people, columns for pipes."""

from __future__ import annotations

import base64
import sys

import pytest

from weft.client.cli import output, units


def test_bytes_in_json_are_text_or_base64() -> None:
    assert output.bytes_field("body", "grüße".encode()) == {"body": "grüße"}
    assert output.bytes_field("body", b"") == {"body": ""}
    assert output.bytes_field("value", None) == {"value": None}
    raw = b"\xff\x00"
    assert output.bytes_field("body", raw) == {"body_base64": base64.b64encode(raw).decode()}


def test_a_preview_is_one_short_harmless_line() -> None:
    assert output.preview(b"plain") == "plain"
    assert output.preview(b"a\n\x1b[31mb\0") == "a··[31mb·"
    assert len(output.preview(b"x" * 1000, width=20)) == 20


def test_a_table_in_a_pipe_is_plain_and_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(("name", "ready"), [("orders", "1,000"), ("a", "2")], right=("ready",))
    assert capsys.readouterr().out == "name    ready\norders  1,000\na           2\n"


def test_a_table_on_a_terminal_prints_markup_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    output.table(("body",), [("[red]not markup[/red]",)])
    assert "[red]not markup[/red]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (3 << 30, "3.0 GiB"),
        (1 << 60, "1048576.0 TiB"),
    ],
)
def test_sizes(number: int, text: str) -> None:
    assert units.size(number) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (30_000, "30.0 s"),
        (90_000, "1 min 30 s"),
        (3_600_000, "1 h 0 min"),
        (300_000_000, "3 d 11 h"),
    ],
)
def test_durations(number: int, text: str) -> None:
    assert units.duration_ms(number) == text


def test_latencies() -> None:
    assert [units.micros(n) for n in (3.14, 314.2, 31_415)] == ["3.1 µs", "314 µs", "31.4 ms"]

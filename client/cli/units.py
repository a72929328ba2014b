"""Formats numbers with units for terminal output."""

from __future__ import annotations

from typing import Final

_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def count(number: int) -> str:
    return f"{number:,}"


def size(number: float) -> str:
    """A number of bytes, in binary units."""
    place = 0
    while number >= 1024 and place < len(_BINARY) - 1:
        number /= 1024
        place += 1
    return f"{number:.0f} {_BINARY[place]}" if place == 0 else f"{number:.1f} {_BINARY[place]}"


def duration_ms(number: float) -> str:
    """A duration given in milliseconds, in at most two units."""
    if number < 1000:
        return f"{number:.0f} ms"
    seconds = number / 1000
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds} s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min"
    return f"{hours // 24} d {hours % 24} h"


def micros(number: float) -> str:
    """A latency given in microseconds; printed in milliseconds from 10 ms on."""
    if number >= 10_000:
        return f"{number / 1000:,.1f} ms"
    return f"{number:,.0f} µs" if number >= 100 else f"{number:,.1f} µs"

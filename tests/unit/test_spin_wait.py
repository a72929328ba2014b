"""Spinning before blocking: an event in time, a block otherwise, no endless futile spinning."""

from __future__ import annotations

import os
import time

import pytest

from weft.spin_wait import VAIN_MAX, SpinWait

#: Long enough for the slowest machine to poll once.
LONG_US = 200_000


class Line:
    """An event happens at the poll of this number, or during the block."""

    def __init__(self, comes_at: int = 0, sleeps_s: float = 0.0) -> None:
        self.comes_at = comes_at
        self.sleeps_s = sleeps_s
        self.looks = self.sleeps = 0

    def look(self) -> str:
        self.looks += 1
        return "seen" if self.looks == self.comes_at else ""

    def sleep(self) -> str:
        self.sleeps += 1
        time.sleep(self.sleeps_s)
        return "woken"


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})


def waited(awake: SpinWait, line: Line) -> str:
    return awake.wait(line.look, line.sleep)


def test_what_comes_at_once_wakes_nobody() -> None:
    line = Line(comes_at=3)
    assert waited(SpinWait(LONG_US), line) == "seen"
    assert (line.looks, line.sleeps) == (3, 0)


def test_who_has_looked_in_vain_sleeps() -> None:
    line = Line()
    assert waited(SpinWait(1_000), line) == "woken"
    assert line.looks > 0
    assert line.sleeps == 1


@pytest.mark.parametrize("cores", [1, 2])
def test_never(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    line = Line(comes_at=1)
    assert waited(SpinWait(0 if cores > 1 else LONG_US), line) == "woken"
    assert (line.looks, line.sleeps) == (0, 1)


def test_a_few_waits_in_vain_end_it_until_a_sleep_was_short() -> None:
    awake = SpinWait(2_000)
    for _ in range(VAIN_MAX):
        line = Line(sleeps_s=0.01)
        waited(awake, line)
        assert line.looks
    for _ in range(3):
        line = Line(sleeps_s=0.01)
        assert waited(awake, line) == "woken"
        assert (line.looks, line.sleeps) == (0, 1), "it has learned"
    short = Line()
    for _ in range(100):  # on a slow machine any block may be long
        waited(awake, short)
        if short.looks:
            return
    pytest.fail("it would have been worth while")


def test_what_is_found_makes_up_for_what_was_not() -> None:
    awake = SpinWait(2_000)
    for _ in range(3):
        for _ in range(VAIN_MAX - 1):
            waited(awake, Line(sleeps_s=0.01))
        line = Line(comes_at=1)
        assert waited(awake, line) == "seen"

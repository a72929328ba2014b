"""Admission by itself: those let in are counted, and the kernel's word frees places."""

from __future__ import annotations

import pytest
import zmq

from weft.server import admission
from weft.server.admission import Admission


class Kernel:
    def __init__(self) -> None:
        self.open: int | None = 0

    def count(self) -> int:
        if self.open is None:
            raise OSError("no table")
        return self.open


def test_places_are_given_out_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "LOOK_S", 0.0)  # the kernel is asked every time
    kernel, context = Kernel(), zmq.Context()
    kernel.open = 100  # many knock at once: nobody is in yet
    door = Admission(context, 3, kernel.count)
    try:
        assert [door._admits() for _ in range(5)] == [True, True, True, False, False]
        assert door.refused == 2
        kernel.open = 2  # one has gone, and nobody knocks
        assert door._admits()
        kernel.open = 3
        assert not door._admits()
        kernel.open = None
        assert door._admits(), "who cannot be counted is let in"
    finally:
        context.term()  # never destroy: the socket is in use by its thread
        door.join()

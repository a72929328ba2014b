"""Files are removed in a thread of its own, which stands behind the others."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from weft.persistence.undertaker import NICE, Undertaker


def test_files_are_removed_by_who_lets_others_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nobody else of the process is slower for it."""
    places = [tmp_path / str(number) for number in range(3)]
    for place in places:
        place.write_bytes(b"dead")
    seen: list[int] = []
    unlink = os.unlink

    def watched(path: str) -> None:
        seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        unlink(path)

    monkeypatch.setattr(os, "unlink", watched)
    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    undertaker = Undertaker()
    for place in places:
        undertaker.remove(str(place))
    undertaker.settle()
    undertaker.close()
    assert not any(place.exists() for place in places)
    assert seen == [max(before, NICE)] * len(places)
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before

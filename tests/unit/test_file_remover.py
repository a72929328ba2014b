"""Files are removed in a separate thread of low priority."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from weft.persistence.file_remover import NICE, FileRemover


def test_files_are_removed_by_who_lets_others_go_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no other thread of the process gets a lower priority."""
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
    file_remover = FileRemover()
    for place in places:
        file_remover.remove(str(place))
    file_remover.settle()
    file_remover.close()
    assert not any(place.exists() for place in places)
    assert seen == [max(before, NICE)] * len(places)
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before

"""A queue that was filled and drained frees its disk space."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from weft.limits import MIB
from weft.persistence import layout
from weft.persistence.leveldb import LevelStore
from weft.persistence.segment_pointer import LARGE_BYTES
from weft.server.node.compaction import ROOM_BYTES, SLACK_BYTES, Compaction

FULL_BYTES = 320 * MIB


@pytest.mark.parametrize("size", [LARGE_BYTES - 1, 150_000], ids=["in LevelDB", "in segments"])
def test_what_is_dead_is_given_back_and_what_lives_is_kept(tmp_path: Path, size: int) -> None:
    store = LevelStore(tmp_path / "store", create=True)
    payload = random.Random(size).randbytes(size)  # LevelDB would compress zeros to nothing
    try:
        keys = [layout.body(number % 256, number + 1) for number in range(FULL_BYTES // size)]
        for key in keys:
            store.write([(key, payload)], sync=False)
        full = store.size_bytes()
        for key in keys[1:]:
            store.write([(key, None)], sync=False)
        store._segments.settle()  # files of large payloads are removed without a rewrite, later
        dead = store.size_bytes()
        compaction = Compaction(store)
        compaction.check(len(payload), free_bytes=ROOM_BYTES, full=True)  # no room for a rewrite
        assert compaction._thread is None
        compaction.check(len(payload), free_bytes=2 * ROOM_BYTES, full=False)
        compaction.wait()
        assert full > 2 * SLACK_BYTES
        assert (dead > 2 * SLACK_BYTES) == (size < LARGE_BYTES), "what LevelDB has, it keeps"
        assert store.size_bytes() < 64 * MIB
        assert store.get(keys[0]) == payload
        before = store.size_bytes()
        compaction.check(len(payload), free_bytes=2 * ROOM_BYTES, full=False)  # nothing to gain
        compaction.wait()
        assert store.size_bytes() == before
    finally:
        store.close()


def test_a_living_store_is_left_alone(tmp_path: Path) -> None:
    store = LevelStore(tmp_path / "store", create=True)
    try:
        compaction = Compaction(store)
        compaction.check(0, free_bytes=2 * ROOM_BYTES, full=False)
        assert compaction._thread is None
    finally:
        store.close()

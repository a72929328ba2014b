"""A queue that was filled and drained gives its disk back."""

from __future__ import annotations

from pathlib import Path

from weft.limits import MIB
from weft.persistence import layout
from weft.persistence.leveldb import LevelStore
from weft.server.compaction import ROOM_BYTES, SLACK_BYTES, Compaction

PAYLOAD = bytes(150_000)
BATCHES = 2_000


def test_what_is_dead_is_given_back_and_what_lives_is_kept(tmp_path: Path) -> None:
    store = LevelStore(tmp_path / "store", create=True)
    try:
        keys = [layout.body(number % 256, number + 1) for number in range(BATCHES)]
        for key in keys:
            store.write([(key, PAYLOAD)], sync=False)
        full = store.size_bytes()
        for key in keys[1:]:
            store.write([(key, None)], sync=False)
        compaction = Compaction(store)
        compaction.look(len(PAYLOAD), free_bytes=ROOM_BYTES, full=True)  # no room for a rewrite
        assert compaction._thread is None
        compaction.look(len(PAYLOAD), free_bytes=2 * ROOM_BYTES, full=False)
        compaction.wait()
        assert full > 2 * SLACK_BYTES
        assert store.size_bytes() < 64 * MIB
        assert store.get(keys[0]) == PAYLOAD
        before = store.size_bytes()
        compaction.look(len(PAYLOAD), free_bytes=2 * ROOM_BYTES, full=False)  # nothing to gain
        compaction.wait()
        assert store.size_bytes() == before
    finally:
        store.close()


def test_a_living_store_is_left_alone(tmp_path: Path) -> None:
    store = LevelStore(tmp_path / "store", create=True)
    try:
        compaction = Compaction(store)
        compaction.look(0, free_bytes=2 * ROOM_BYTES, full=False)
        assert compaction._thread is None
    finally:
        store.close()

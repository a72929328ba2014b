"""The content of a partition's snapshot."""

from __future__ import annotations

from weft.dht.log import Log
from weft.dht.snapshot_transfer import SnapshotTransfer
from weft.persistence import layout
from weft.persistence.memory import MemoryStore
from weft.persistence.overlay import Overlay


def test_a_payload_whose_entry_is_not_applied_is_not_part_of_the_state() -> None:
    store = MemoryStore()
    keys = [layout.head(1, 1), layout.body(1, 1), layout.body(1, 2)]
    store.write([(key, layout.seal(key, b"x")) for key in keys], sync=True)
    overlay = Overlay(store)
    sending = SnapshotTransfer.begin(overlay, 1, 7, Log(1, overlay), 1)
    assert sending is not None
    assert {key for key, _ in sending.piece} == {layout.head(1, 1), layout.body(1, 1)}

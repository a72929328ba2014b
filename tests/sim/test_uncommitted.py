"""Proposed, uncommitted changes: visible to the primary, and to no other node."""

from __future__ import annotations

from weft.dht.log import Changes
from weft.dht.uncommitted import UncommittedState
from weft.persistence import table_layout
from weft.persistence.memory import MemoryStore

KEY, OTHER = table_layout.key(0, "k"), table_layout.key(1, "k")


def _pending() -> tuple[UncommittedState, MemoryStore]:
    store = MemoryStore()
    store.write([(KEY, b"old"), (OTHER, b"other")], sync=True)
    return UncommittedState(store, 4), store


def test_the_newest_proposal_is_read_before_it_is_committed() -> None:
    pending, store = _pending()
    pending.add(0, 1, Changes([(KEY, b"one")], [], []))
    pending.add(0, 2, Changes([], [KEY], []))
    assert pending.get(KEY) is None
    assert store.get(KEY) == b"old"
    assert pending.get(OTHER) == b"other"


def test_what_is_committed_leaves_and_what_came_after_stays() -> None:
    pending, store = _pending()
    first, second = Changes([(KEY, b"one")], [], []), Changes([(KEY, b"two")], [], [])
    pending.add(0, 1, first)
    pending.add(0, 2, second)
    store.write([(KEY, b"one")], sync=True)
    pending.settle(0, 1, first)
    assert pending.get(KEY) == b"two"
    store.write([(KEY, b"two")], sync=True)
    pending.settle(0, 2, second)
    assert pending.get(KEY) == b"two"
    store.write([(KEY, b"three")], sync=True)
    assert pending.get(KEY) == b"three"


def test_who_leads_no_more_has_proposed_nothing() -> None:
    pending, _ = _pending()
    pending.add(0, 1, Changes([(KEY, b"one")], [], []))
    pending.add(1, 1, Changes([(OTHER, b"new")], [], []))
    pending.drop(0)
    assert pending.get(KEY) == b"old"
    assert pending.get(OTHER) == b"new"

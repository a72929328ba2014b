"""Metadata lists: announcements in any order, callers' reports of empty nodes, waiting callers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weft.server.core.owned_lists import STALE_US, OwnedLists


def listed(lists: OwnedLists, now: int = 1) -> list[str]:
    return [node for node, _ in lists.nodes("q", now)]


def test_a_later_word_counts_whichever_comes_first() -> None:
    lists = OwnedLists()
    assert lists.record("a", 1, 2, {"q": 5}, now=1) == ["q"]
    assert lists.record("a", 1, 1, {"q": 0}, now=1) == []
    assert lists.nodes("q", 1) == [("a", 5)]
    lists.record("a", 2, 1, {"q": 0}, now=1)
    assert lists.nodes("q", 1) == []


def test_what_is_not_said_again_is_forgotten() -> None:
    lists = OwnedLists()
    lists.record("a", 1, 1, {"q": 5}, now=1)
    assert listed(lists, 1 + STALE_US) == ["a"]
    assert listed(lists, 2 + STALE_US) == []


def test_a_fall_that_somebody_saw_counts_as_if_the_node_had_said_it() -> None:
    lists = OwnedLists()
    lists.record("a", 1, 1, {"q": 5}, now=1)
    lists.record("b", 1, 7, {"q": 3}, now=1)
    lists.mark_empty("q", {"a": (1, 1), "unknown": (1, 1)})
    assert listed(lists) == ["b"]
    lists.mark_empty("q", {"b": (1, 9)})
    assert listed(lists) == []


def test_a_fall_that_is_heard_of_late_hides_no_rise() -> None:
    lists = OwnedLists()
    lists.record("a", 1, 4, {"q": 5}, now=1)
    lists.mark_empty("q", {"a": (1, 3)})
    assert listed(lists) == ["a"]
    lists.record("a", 2, 1, {"q": 5}, now=1)
    lists.mark_empty("q", {"a": (1, 99)})
    assert listed(lists) == ["a"], "an earlier process of the node said that"


def test_who_lies_about_a_fall_is_found_out_by_the_nodes_next_word() -> None:
    lists = OwnedLists()
    lists.record("a", 1, 1, {"q": 5}, now=1)
    lists.mark_empty("q", {"a": (1 << 62, 1 << 62)})
    assert listed(lists) == []
    assert lists.record("a", 1, 2, {"q": 5}, now=1) == ["q"]
    assert listed(lists) == ["a"]


def test_a_fall_keeps_nothing_in_memory() -> None:
    lists = OwnedLists()
    lists.mark_empty("q", {"a": (1, 1)})
    assert not lists._announced
    lists.record("a", 1, 1, {"q": 5}, now=1)
    lists.mark_empty("q", {"a": (1, 1)})
    assert listed(lists, 2 + STALE_US) == []
    assert not lists._announced


@given(
    events=st.lists(st.sampled_from(["push", "take"]), max_size=12),
    order=st.randoms(use_true_random=False),
)
def test_whatever_the_order_the_last_rise_is_never_hidden(events: list[str], order: object) -> None:
    """A node gets and loses messages; its announcements arrive in any order.

    Each report that the node is empty goes through a caller. The node's next announcement corrects
    the list, at the latest.
    """
    said: list[tuple[str, int, int]] = []
    number = ready = 0
    for event in events:
        if event == "push":
            ready += 1
            if ready == 1:
                number += 1
                said.append(("word", number, ready))
        elif ready:
            ready = 0
            said.append(("fall", number, 0))
    order.shuffle(said)  # type: ignore[attr-defined]
    lists = OwnedLists()
    for kind, last, count in said:
        if kind == "word":
            lists.record("a", 1, last, {"q": count}, now=1)
        else:
            lists.mark_empty("q", {"a": (1, last)})
    if ready:
        assert listed(lists) == ["a"]
    lists.record("a", 1, number + 1, {"q": ready}, now=1)
    assert bool(listed(lists)) == bool(ready)


def test_messages_on_their_way_to_a_consumer_leave_the_list() -> None:
    lists = OwnedLists()
    lists.record("a", 1, 1, {"q": 3}, now=1)
    lists.subtract("q", "a", 2)
    assert lists.nodes("q", 1) == [("a", 1)]
    lists.subtract("q", "a", 2)
    assert listed(lists) == []
    lists.subtract("q", "unknown", 1)
    lists.record("a", 1, 2, {"q": 1}, now=1)
    assert listed(lists) == ["a"], "its next announcement counts"

"""The search for a queue's messages: the paper's order, everybody's turn, nothing overlooked."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from weft.dht.search import (
    LIST_EVERY,
    PAUSE_MS,
    PAUSE_MS_MAX,
    SWEEP_MAX,
    Ask,
    Search,
    Step,
    Trail,
    Wait,
    Where,
)
from weft.limits import FALLEN_MAX

NODES = ["a", "b", "c", "d", "e"]


def search(trail: Trail | None = None, local: str | None = "a", entropy: int = 2) -> Search:
    return Search(NODES, local, trail or Trail(), entropy)


def asked(one: Search) -> str:
    step = one.next()
    assert isinstance(step, Ask), step
    return step.node


def test_the_order_of_the_paper() -> None:
    trail = Trail()
    trail.found("b", left=0)
    one = search(trail, entropy=2)
    order = []
    for _ in range(3):
        order.append(asked(one))
        one.empty(order[-1])
    assert order == ["a", "b", "c"], "local, last, random"
    assert one.next() == Where()
    one.told(["e"])
    assert asked(one) == "e"
    one.empty("e")
    assert asked(one) == "d", "nobody is left out before it waits"
    one.empty("d")
    assert one.next() == Wait(0)


def test_a_search_that_is_woken_goes_where_it_is_told() -> None:
    one = search()
    while not isinstance(step := one.next(), Wait):
        one.told([]) if isinstance(step, Where) else one.empty(asked_node(step))
    one.told(["d", "a"])
    assert asked(one) == "d"
    one.found("d", left=3)
    assert one.more() == Ask("a")
    assert one.more() is None


def asked_node(step: Step) -> str:
    assert isinstance(step, Ask)
    return step.node


def test_a_wait_in_vain_is_followed_by_a_sweep() -> None:
    one = search()
    walk_to_wait(one)
    one.told([])
    again = []
    while isinstance(step := one.next(), Ask):
        again.append(step.node)
        one.empty(step.node)
    assert sorted(again) == NODES
    assert step == Wait(0)


def test_who_is_woken_for_nothing_pauses_longer_each_time() -> None:
    one = search()
    walk_to_wait(one)
    pauses = []
    for _ in range(8):
        one.told(["b"])
        one.empty(asked(one))
        step = one.next()
        assert isinstance(step, Wait)
        pauses.append(step.pause_ms)
    assert pauses[:3] == [PAUSE_MS, 2 * PAUSE_MS, 4 * PAUSE_MS]
    assert pauses[-1] == PAUSE_MS_MAX


def walk_to_wait(one: Search) -> None:
    while not isinstance(step := one.next(), Wait):
        if isinstance(step, Ask):
            one.empty(step.node)
        else:
            one.told([])


def test_holders_take_turns() -> None:
    trail = Trail()
    trail.told(["c", "d"])
    seen = []
    for _ in range(9):
        one = search(trail)
        seen.append(asked(one))
        one.found(seen[-1], left=1)
    assert seen[:3] == ["c", "d", "c"]
    assert "a" not in seen, "the local node is not known to hold anything"


def test_a_consumer_whose_node_is_never_empty_learns_of_the_others() -> None:
    trail = Trail()
    seen: Counter[str] = Counter()
    lists = 0
    for _ in range(4 * LIST_EVERY):
        one = search(trail)
        while not isinstance(step := one.next(), Ask):
            lists += 1
            one.told(["e", "a"])
        seen[step.node] += 1
        one.found(step.node, left=1)
    assert seen["e"] > LIST_EVERY
    assert 1 <= lists <= 4


def test_a_node_that_does_not_answer_leaves_a_doubt_until_it_does() -> None:
    one = search()
    one.failed(asked(one))
    assert one.unsure == {"a"}
    walk_to_wait(one)
    assert one.unsure == {"a"}
    one.told(["a"])
    one.empty(asked(one))
    assert one.unsure == set()


def test_hops_are_questions_that_leave_the_local_node() -> None:
    trail = Trail()
    one = search(trail)
    one.empty(asked(one))
    assert one.hops == 0, "the local node"
    walk_to_wait(one)
    assert one.hops == 5, "four other nodes and the list"
    assert (trail.searches, trail.hops) == (1, 5)


def test_nodes_that_left_the_view_are_not_asked() -> None:
    trail = Trail()
    trail.found("gone", left=5)
    one = search(trail, local="gone too")
    steps = []
    while not isinstance(step := one.next(), Wait):
        steps.append(step)
        one.told(["unknown"]) if isinstance(step, Where) else one.empty(asked_node(step))
    assert {step.node for step in steps if isinstance(step, Ask)} == set(NODES)


def test_a_large_cluster_is_not_swept_whole() -> None:
    nodes = [str(number) for number in range(10 * SWEEP_MAX)]
    one = Search(nodes, None, Trail(), entropy=12345)
    walk_to_wait(one)
    assert one.hops <= SWEEP_MAX + 3


def test_what_nodes_said_when_they_had_nothing_left_is_passed_on_once() -> None:
    trail = Trail()
    assert not trail.heeded, "who has not asked the keeper yet does not know it"
    trail.fell("a", (1, 4))
    trail.fell("b", None)
    trail.fell("a", (1, 7))
    assert trail.fallen() == {"a": (1, 7)}
    assert trail.fallen() == {}


def test_not_more_than_a_keeper_takes_are_passed_on() -> None:
    trail = Trail()
    for number in range(2 * FALLEN_MAX):
        trail.fell(str(number), (1, number))
    assert len(trail.fallen()) == FALLEN_MAX


@given(
    holdings=st.dictionaries(st.sampled_from(NODES), st.integers(1, 5)),
    listed=st.sets(st.sampled_from([*NODES, "gone"])),
    down=st.sets(st.sampled_from(NODES)),
    entropy=st.integers(0, 2**64),
    local=st.sampled_from([None, *NODES]),
)
def test_everything_on_a_node_that_answers_is_found(
    holdings: dict[str, int], listed: set[str], down: set[str], entropy: int, local: str | None
) -> None:
    """Whatever the list says, right or wrong."""
    trail = Trail()
    reachable = {node: count for node, count in holdings.items() if node not in down}
    for _ in range(sum(reachable.values())):
        one = Search(NODES, local, trail, entropy)
        for _ in range(4 * len(NODES)):
            step = one.next()
            assert not isinstance(step, Wait), f"{reachable} is overlooked"
            if isinstance(step, Where):
                one.told(sorted(listed))
            elif step.node in down:
                one.failed(step.node)
            elif reachable.get(step.node):
                reachable[step.node] -= 1
                one.found(step.node, reachable[step.node])
                break
            else:
                one.empty(step.node)
        else:
            raise AssertionError("a search that does not end")
    one = Search(NODES, local, trail, entropy)
    order = []
    while not isinstance(step := one.next(), Wait):
        if isinstance(step, Where):
            one.told(sorted(listed))
        else:
            order.append(step.node)
            one.failed(step.node) if step.node in down else one.empty(step.node)
    assert sorted(order) == NODES, "each is asked once before the answer is: nothing"
    assert one.unsure == down

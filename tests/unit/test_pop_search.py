"""The search for a queue's messages: the paper's order, fairness, nothing overlooked."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from weft.limits import FALLEN_MAX
from weft.pop_search import (
    LIST_EVERY,
    PAUSE_MS,
    PAUSE_MS_MAX,
    SWEEP_MAX,
    AskMetadataList,
    AskNode,
    PopSearch,
    SearchMemory,
    Step,
    WaitAtMetadataList,
)

NODES = ["a", "b", "c", "d", "e"]


def search(
    search_memory: SearchMemory | None = None, local: str | None = "a", entropy: int = 2
) -> PopSearch:
    return PopSearch(NODES, local, search_memory or SearchMemory(), entropy)


def asked(one: PopSearch) -> str:
    step = one.next()
    assert isinstance(step, AskNode), step
    return step.node


def test_the_order_of_the_paper() -> None:
    search_memory = SearchMemory()
    search_memory.found("b", left=0)
    one = search(search_memory, entropy=2)
    order = []
    for _ in range(3):
        order.append(asked(one))
        one.empty(order[-1])
    assert order == ["a", "b", "c"], "local, last, random"
    assert one.next() == AskMetadataList()
    one.use_list(["e"])
    assert asked(one) == "e"
    one.empty("e")
    assert asked(one) == "d", "nobody is left out before it waits"
    one.empty("d")
    assert one.next() == WaitAtMetadataList(0)


def test_a_search_that_is_woken_goes_where_it_is_told() -> None:
    one = search()
    while not isinstance(step := one.next(), WaitAtMetadataList):
        one.use_list([]) if isinstance(step, AskMetadataList) else one.empty(asked_node(step))
    one.use_list(["d", "a"])
    assert asked(one) == "d"
    one.found("d", left=3)
    assert one.more() == AskNode("a")
    assert one.more() is None


def asked_node(step: Step) -> str:
    assert isinstance(step, AskNode)
    return step.node


def test_a_wait_in_vain_is_followed_by_a_sweep() -> None:
    one = search()
    walk_to_wait(one)
    one.use_list([])
    again = []
    while isinstance(step := one.next(), AskNode):
        again.append(step.node)
        one.empty(step.node)
    assert sorted(again) == NODES
    assert step == WaitAtMetadataList(0)


def test_who_is_woken_for_nothing_pauses_longer_each_time() -> None:
    one = search()
    walk_to_wait(one)
    pauses = []
    for _ in range(8):
        one.use_list(["b"])
        one.empty(asked(one))
        step = one.next()
        assert isinstance(step, WaitAtMetadataList)
        pauses.append(step.pause_ms)
    assert pauses[:3] == [PAUSE_MS, 2 * PAUSE_MS, 4 * PAUSE_MS]
    assert pauses[-1] == PAUSE_MS_MAX


def walk_to_wait(one: PopSearch) -> None:
    while not isinstance(step := one.next(), WaitAtMetadataList):
        if isinstance(step, AskNode):
            one.empty(step.node)
        else:
            one.use_list([])


def test_holders_take_turns() -> None:
    search_memory = SearchMemory()
    search_memory.use_list(["c", "d"])
    seen = []
    for _ in range(9):
        one = search(search_memory)
        seen.append(asked(one))
        one.found(seen[-1], left=1)
    assert seen[:3] == ["c", "d", "c"]
    assert "a" not in seen, "the local node is not known to hold anything"


def test_a_consumer_whose_node_is_never_empty_learns_of_the_others() -> None:
    search_memory = SearchMemory()
    seen: Counter[str] = Counter()
    lists = 0
    for _ in range(4 * LIST_EVERY):
        one = search(search_memory)
        while not isinstance(step := one.next(), AskNode):
            lists += 1
            one.use_list(["e", "a"])
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
    one.use_list(["a"])
    one.empty(asked(one))
    assert one.unsure == set()


def test_hops_are_questions_that_leave_the_local_node() -> None:
    search_memory = SearchMemory()
    one = search(search_memory)
    one.empty(asked(one))
    assert one.hops == 0, "the local node"
    walk_to_wait(one)
    assert one.hops == 5, "four other nodes and the list"
    assert (search_memory.searches, search_memory.hops) == (1, 5)


def test_nodes_that_left_the_view_are_not_asked() -> None:
    search_memory = SearchMemory()
    search_memory.found("gone", left=5)
    one = search(search_memory, local="gone too")
    steps = []
    while not isinstance(step := one.next(), WaitAtMetadataList):
        steps.append(step)
        one.use_list(["unknown"]) if isinstance(step, AskMetadataList) else one.empty(
            asked_node(step)
        )
    assert {step.node for step in steps if isinstance(step, AskNode)} == set(NODES)


def test_a_large_cluster_is_not_swept_whole() -> None:
    nodes = [str(number) for number in range(10 * SWEEP_MAX)]
    one = PopSearch(nodes, None, SearchMemory(), entropy=12345)
    walk_to_wait(one)
    assert one.hops <= SWEEP_MAX + 3


def test_what_nodes_said_when_they_had_nothing_left_is_passed_on_once() -> None:
    search_memory = SearchMemory()
    assert not search_memory.heeded, "who has not asked the keeper yet does not know it"
    search_memory.fell("a", (1, 4))
    search_memory.fell("b", None)
    search_memory.fell("a", (1, 7))
    assert search_memory.fallen() == {"a": (1, 7)}
    assert search_memory.fallen() == {}


def test_not_more_than_a_keeper_takes_are_passed_on() -> None:
    search_memory = SearchMemory()
    for number in range(2 * FALLEN_MAX):
        search_memory.fell(str(number), (1, number))
    assert len(search_memory.fallen()) == FALLEN_MAX


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
    """Whether the list is right or wrong."""
    search_memory = SearchMemory()
    reachable = {node: count for node, count in holdings.items() if node not in down}
    for _ in range(sum(reachable.values())):
        one = PopSearch(NODES, local, search_memory, entropy)
        for _ in range(4 * len(NODES)):
            step = one.next()
            assert not isinstance(step, WaitAtMetadataList), f"{reachable} is overlooked"
            if isinstance(step, AskMetadataList):
                one.use_list(sorted(listed))
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
    one = PopSearch(NODES, local, search_memory, entropy)
    order = []
    while not isinstance(step := one.next(), WaitAtMetadataList):
        if isinstance(step, AskMetadataList):
            one.use_list(sorted(listed))
        else:
            order.append(step.node)
            one.failed(step.node) if step.node in down else one.empty(step.node)
    assert sorted(order) == NODES, "each is asked once before the answer is: nothing"
    assert one.unsure == down


def test_a_patient_search_asks_known_holders_and_waits_at_the_list() -> None:
    search_memory = SearchMemory()
    search_memory.found("b", left=1)
    search_memory.found("c", left=0)
    one = PopSearch(NODES, "a", search_memory, 2, patient=True)
    assert [asked(one), asked(one)] == ["b", "a"]
    assert one.next() == WaitAtMetadataList(0)
    one.use_list(["d"])
    assert asked(one) == "d"
    one.empty("d")
    assert one.next() == WaitAtMetadataList(PAUSE_MS), "it was woken for nothing"


def test_a_patient_search_asks_one_node_after_each_wait_in_vain() -> None:
    one = PopSearch(NODES, "a", SearchMemory(), 2, patient=True)
    one.empty(asked(one))
    probed = []
    for _ in NODES:
        assert one.next() == WaitAtMetadataList(0)
        one.use_list([])
        probed.append(asked(one))
        one.empty(probed[-1])
    assert sorted(probed) == NODES

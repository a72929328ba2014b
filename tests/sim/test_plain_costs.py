"""Pops of plain clients: messages between nodes are bounded, stolen messages are not hidden.

Counts come from ``plain_costs``: real nodes in a world without faults, so the counts are exact and
do not depend on the machine. Times are those of the simulated network, where a message takes about
half a millisecond.
"""

from __future__ import annotations

import pytest

from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.core.node_core import NodeCore
from weft.server.core.prefetch import KEEP_US

from .plain_costs import LEASE_MS, QUEUE, Consumer, Load, arrivals, backlog, idle
from .world import SECOND

#: A wake-up takes a few messages and rounds.
SOON = SECOND // 20


@pytest.mark.parametrize(("nodes", "bound"), [(3, 6.0), (8, 6.0), (12, 6.0)])
def test_an_arrival_costs_six_messages_at_any_number_of_nodes(nodes: int, bound: float) -> None:
    costs = arrivals(nodes, 60, 100_000)
    assert costs.per_message() <= bound, costs
    assert costs.stolen == 0
    assert costs.slowest_us < SOON


def test_slow_arrivals_cost_no_more() -> None:
    assert arrivals(8, 8, 5 * SECOND // 2).per_message() <= 6.5


def test_a_rise_wakes_one_of_several_waiting_consumers() -> None:
    costs = arrivals(8, 60, 100_000, consumers=6)
    assert costs.per_message() <= 7, costs
    assert costs.slowest_us < SOON


@pytest.mark.parametrize("nodes", [3, 8])
def test_waiting_for_nothing_costs_two_messages_a_second_at_most(nodes: int) -> None:
    assert idle(nodes, 12).search_frames <= 2 * 12


@pytest.mark.parametrize("nodes", [3, 8])
def test_a_steady_consumer_uses_what_it_steals(nodes: int) -> None:
    costs = backlog(nodes, 800)
    assert costs.stolen > 100, "a fast consumer is not sent to another node for each message"
    assert costs.returned <= costs.stolen // 10, costs
    assert costs.expired == 0
    assert costs.messages["Pop"] <= 80, "one request brings many messages"


def test_a_slow_consumer_steals_nothing() -> None:
    costs = backlog(3, 24, work_us=250_000)
    assert costs.stolen == 0


class Scene(Load):
    """Eight nodes; consumer's node, holder and list's owner are three different ones."""

    def __init__(self, nodes: int = 8, settings: Settings | None = None) -> None:
        super().__init__(nodes, settings=settings)
        others = [name for name in self.names if name != self.list_owner]
        self.here, self.there, self.holder = others[:3]

    def pop(self, node: str, *, limit: int = 1, wait_ms: int = 20_000) -> list[wire.Popped]:
        """Pop; the returned list holds the answer once it arrives."""
        said: list[wire.Popped] = []

        def popped(answer: wire.AnyAnswer) -> None:
            assert isinstance(answer, wire.Popped), answer
            said.append(answer)

        self.token = self.ask(node, wire.Pop(QUEUE, limit, wait_ms), popped)
        return said

    def ready(self) -> int:
        return sum(
            machine.node_core.engine.state.queues[QUEUE].ready
            for machine in self.world.machines.values()
        )


def lent(said: list[wire.Popped]) -> wire.Lent:
    ((one,),) = [answer.lent for answer in said]
    return one


def test_stolen_messages_that_are_not_used_are_soon_there_for_others() -> None:
    scene = Scene()
    for _ in range(200):
        scene.push(scene.holder)
    scene.run(3 * SECOND)
    fast = Consumer(scene, scene.here)
    while fast.delivered < 60:
        scene.run(1000)
    fast.stopped = True
    prefetched = scene.world.machines[scene.here].node_core.remote_pop.prefetched
    scene.run(20_000)
    hidden = prefetched.stolen - prefetched.used - prefetched.returned
    assert hidden > 0, "the consumer stopped in the middle of a lot"
    other = Consumer(scene, scene.there)
    scene.run(KEEP_US + 2 * SECOND)
    assert prefetched.bytes == 0
    assert fast.delivered + other.delivered == 200
    assert len(set(scene.received)) == 200
    other.stopped = True


def test_a_consumer_who_finds_nothing_else_gets_returned_messages_in_time() -> None:
    scene = Scene()
    prefetched = scene.world.machines[scene.here].node_core.remote_pop.prefetched
    prefetched.consumed(QUEUE, 0, 20, scene.world.now + scene.world.machines[scene.here].skew)
    for _ in range(5):
        scene.push(scene.holder)
    scene.run(SOON)
    first = scene.pop(scene.here)
    scene.run(SOON)
    assert lent(first).count == 1
    assert prefetched.stolen == 4, "a lot of what was consumed in the last 100 ms"
    waiting = [scene.pop(scene.there) for _ in range(4)]
    scene.run(KEEP_US + SOON)
    assert [lent(said).deliveries for said in waiting] == [1] * 4, "what came back was not counted"


def test_a_node_that_stops_gives_stolen_messages_back_uncounted() -> None:
    scene = Scene()
    machine = scene.world.machines[scene.here]
    machine.node_core.remote_pop.prefetched.consumed(QUEUE, 0, 20, scene.world.now + machine.skew)
    for _ in range(5):
        scene.push(scene.holder)
    scene.run(SOON)
    scene.pop(scene.here)
    scene.run(SOON)
    assert scene.ready() == 0

    def stop(node_core: NodeCore) -> None:
        node_core.retire()

    scene.world.round(machine, stop)
    scene.run(SOON)  # less than KEEP_US after the messages were stolen
    assert scene.ready() == 4
    waiting = [scene.pop(scene.there) for _ in range(4)]
    scene.run(SECOND)  # other nodes take over the partitions that the node led
    assert [lent(said).deliveries for said in waiting] == [1] * 4


def test_two_messages_at_one_node_wake_two_waiting_nodes() -> None:
    scene = Scene()
    waiting = [scene.pop(scene.here), scene.pop(scene.there)]
    scene.run(SECOND)
    scene.push(scene.holder)
    scene.push(scene.holder)
    scene.run(SOON)
    assert [lent(said).count for said in waiting] == [1, 1]


def test_a_consumer_that_has_gone_does_not_keep_a_message_from_others() -> None:
    scene = Scene()
    scene.pop(scene.here)
    gone = scene.token
    scene.run(SECOND // 2)
    waiting = scene.pop(scene.there)
    scene.run(SECOND // 2)
    scene.cancel(scene.here, gone)
    scene.push(scene.holder)
    scene.run(SOON)
    assert lent(waiting).deliveries == 1, "it was never delivered to the client that has gone"


@pytest.mark.parametrize("ordered", [False, True])
def test_a_nack_and_the_end_of_a_lease_wake_who_waits(ordered: bool) -> None:
    scene = Scene(settings=Settings(lease_ms=LEASE_MS, ordered=ordered))
    scene.push()
    scene.run(SOON)
    first = scene.pop(scene.here)
    scene.run(SOON)
    waiting = scene.pop(scene.there)
    scene.run(SECOND)
    assert not waiting
    one = lent(first)
    nack = wire.Nack(QUEUE, [wire.Receipt(one.partition, one.lsn, one.nonce)])
    scene.ask(scene.here, nack, lambda _: None)
    scene.run(SOON)
    assert lent(waiting).deliveries == 2
    last = scene.pop(scene.here, wait_ms=2 * LEASE_MS)
    scene.run(LEASE_MS * 1000 - 2 * SOON)
    assert not last
    scene.run(4 * SOON)
    assert lent(last).deliveries == 3


def test_a_delayed_message_wakes_who_waits_when_it_is_due() -> None:
    scene = Scene()
    waiting = scene.pop(scene.here)
    scene.push(scene.holder, delay_ms=4_000)
    scene.run(4 * SECOND - SOON)
    assert not waiting
    scene.run(2 * SOON)
    assert lent(waiting).count == 1


def test_a_message_on_the_waiting_node_or_on_the_owner_of_the_list_wakes_it() -> None:
    for where in ("here", "list_owner"):
        scene = Scene()
        waiting = scene.pop(scene.here)
        scene.run(SECOND)
        scene.push(getattr(scene, where))
        scene.run(SOON)
        assert lent(waiting).count == 1


def test_a_node_that_cannot_reach_the_owner_of_the_list_is_found() -> None:
    """Its announcements are lost; a waiting node probes one node after each unsuccessful wait."""
    scene = Scene(4)
    scene.world.network.cut(scene.holder, scene.list_owner)
    waiting = scene.pop(scene.here, wait_ms=60_000)
    scene.push(scene.holder)
    for _ in range(40):
        scene.run(SECOND)
    assert waiting

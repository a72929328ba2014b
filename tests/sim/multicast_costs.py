"""Messages between nodes for one multicast to several ordered queues, in a world without faults.

The destinations are on as many nodes, every partition has two copies, and the publisher sends to
the coordinator's node. Pings, what goes out with them, and the announcements of ready queues are
left out: they are there for plain pushes, too.

| step    | messages between nodes                                              | for d queues |
|---------|---------------------------------------------------------------------|--------------|
| propose | request and answer for each other partition; entry and reply for d  | 4d - 2       |
| decide  | entry and reply                                                     | 2            |
| assign  | request, answer, entry and reply for each other partition           | 4d - 4       |
| close   | entry and reply: the deliveries leave the outbox                    | 2            |

``python -m tests.sim.multicast_costs`` prints the counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from weft.dht import placement
from weft.proto import wire
from weft.proto.settings import Settings

from .clients import Batch, Used
from .machine import Machine
from .plain_costs import Costs, Meter
from .stage import Stage
from .world import SECOND

_PRODUCER = 62


def counted(destinations: int) -> Costs:
    """The messages of the second multicast: the first one asks every member for the feature."""
    stage = Stage(max(3, destinations), 4 * max(3, destinations), learners=0)
    world, partitions = stage.world, stage.world.options.partitions
    places: dict[str, str] = {}
    for name in (f"costs-{number}" for number in itertools.count()):
        node = world.newest_view.places[placement.of_text(name, partitions)].primary
        places.setdefault(node, name)
        if len(places) == destinations:
            break
    names = list(places.values())
    ordered = Settings(lease_ms=30_000, ordered=True)
    stage.clients.queues = [Used(name, 70 + at, ordered) for at, name in enumerate(names)]
    for queue in stage.clients.queues:
        stage.clients.make(queue)
    world.run(world.now + SECOND)
    home = min(placement.of_text(name, partitions) for name in names)
    machine = world.machines[world.newest_view.places[home].primary]
    answers: list[wire.AnyAnswer] = []

    def multicast(number: int) -> None:
        used = Used("costs", _PRODUCER, Settings(), made=True)
        batch = Batch(used, number, [b"x"] * destinations, spread=True)
        world.checker.ledger.batches[_PRODUCER, number] = batch

        def answered(_: Machine, answer: wire.AnyAnswer, __: Sequence[bytes]) -> None:
            answers.append(answer)

        payload = wire.encode(wire.Payload([b"x"]))
        request = wire.Multicast(names, _PRODUCER, number, 1)
        world.ask(machine, request, (payload,), answered, plain=False)
        world.run(world.now + 3 * SECOND)

    multicast(1)
    costs = Costs()
    meter = Meter(stage, costs)
    multicast(2)
    meter.finish()
    assert [type(each) for each in answers] == [wire.Multicasted] * 2, answers
    queues = machine.node_core.engine.queues
    assert all(name in queues for name in names)
    return costs


def total(costs: Costs) -> int:
    """Messages of the protocol."""
    left_out = ("ReadyAnnouncement", "Commits")  # the second ones go out with pings
    return sum(count for kind, count in costs.messages.items() if kind not in left_out)


def main() -> None:
    for destinations in (2, 3, 4):
        costs = counted(destinations)
        print(destinations, total(costs), "of", 8 * destinations - 2, dict(costs.messages))


if __name__ == "__main__":
    main()

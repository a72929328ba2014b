"""One run: build a cluster, work under faults, heal, and check that the cluster recovers."""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial

from . import faults, settled, stop_all
from .buffers import Buffers
from .cancels import Cancels
from .clients import Clients
from .counters import Counters
from .graphs import Graphs
from .keeper import Keeper
from .multicasts import Multicasts
from .options import Options
from .sequences import Sequences
from .table_clients import TableClients
from .table_watchers import TableWatchers
from .transactions import Transactions
from .violation import Violation
from .world import SECOND, World

#: Upper bound of the recovery time.
_HEAL_MAX = 45 * SECOND


def simulate(
    seed: int, options: Options | None = None, planted_bugs: str = "", *, whole: bool = False
) -> World:
    """Run a seed; `whole`: with the fixed size that all runs once had."""
    world = World(seed, options, planted_bugs, whole=whole)
    try:
        _simulate(world)
    except Violation as violation:
        raise Violation(_tell(seed, world, violation)) from None
    except Exception as error:
        raise AssertionError(_tell(seed, world, error)) from error
    return world


def _simulate(world: World) -> None:
    clients, counters = Clients(world), Counters(world)
    transactions = Transactions(world, clients, world.seed)
    graphs = Graphs(world, clients, world.seed)
    multicasts, sequences = Multicasts(world, clients), Sequences(world, clients)
    tables, watchers = TableClients(world, world.seed), TableWatchers(world, world.seed)
    span = world.options.span_us
    world.build()
    _until(world, lambda: settled.whole(world), 10 * SECOND)
    for queue in clients.queues:
        clients.make(queue)
    _until(world, lambda: settled.made(clients), 5 * SECOND)
    world.network.network_faults = world.options.network_faults
    world.gather_us = world.options.gather_us
    for batch in clients.prepare(world.options.pushes):
        world.after(world.rng.randrange(span), partial(clients.push, batch))
    for number in range(3):
        world.after(world.rng.randrange(SECOND), partial(clients.consume, number))
    Keeper(world, clients).schedule(span)
    if world.options.cancels:
        Cancels(world, clients).schedule(span)
    if world.options.multicasts:
        multicasts.schedule(span)
    if world.options.sequences:
        sequences.schedule(span)
    if world.options.counters:
        counters.schedule(span)
    if world.options.tables:
        tables.schedule(span)
        watchers.schedule()
    if world.options.transactions:
        transactions.schedule(span)
    if world.options.graphs:
        graphs.schedule(span)
    faults.schedule(world)
    world.run(world.now + span)
    faults.heal(world)
    if world.options.stop_all:
        # Without a member that stays away, the first multicast would be refused.
        _until(world, lambda: multicasts.disabled() or sequences.disabled(), _HEAL_MAX)
        stop_all.play(world, clients, _until)
    world.gather_us = max(world.options.gather_us, world.options.calm_gather_us)
    counters.running = tables.running = watchers.running = transactions.running = False
    graphs.running = False
    _until(world, lambda: transactions.settled() or graphs.settled(), _HEAL_MAX)
    clients.hurry = True
    # Together: a delivery of a partition that nobody leads is in no node's memory.
    _until(
        world,
        lambda: settled.consumed(world, clients) or transactions.settled() or graphs.settled(),
        _HEAL_MAX,
    )
    clients.consuming = False
    counters.check()
    _until(world, lambda: settled.level(world), _HEAL_MAX)
    if world.options.stochastic:
        Buffers(world, clients).check()
        _until(world, lambda: settled.level(world), _HEAL_MAX)
    settled.states(world)
    tables.check()
    transactions.check()
    graphs.check()
    watchers.check(dict(tables.histories))
    multicasts.check()
    sequences.check()
    lost = world.checker.ledger.lost
    world.checker.that(not lost, f"lost: {lost[:5]} of {len(lost)} were stored and never acked")


def _until(world: World, missing: Callable[[], str], most: int) -> None:
    """Run until `missing` returns an empty string, checked at intervals."""
    end = world.now + most
    while what := missing():
        if world.now >= end:
            raise Violation(f"liveness: {what}")
        world.run(world.now + world.options.look_us)


def _tell(seed: int, world: World, error: Exception) -> str:
    tail = "\n".join(world.story[-60:])
    return (
        f"seed {seed}: {error!r}\n{world.options}\nthe last events:\n{tail}\n"
        f"again: make sim SEED={seed}; when it is mended, keep it: add the line "
        f"'{seed}  what it was' to tests/sim/kept_seeds.txt"
    )


def try_seed(seed: int) -> tuple[int, str]:
    """The seed and its error, or an empty string."""
    gc.disable()  # a world is small and short-lived, and is freed as a whole
    try:
        simulate(seed)
    except AssertionError as error:
        return seed, str(error)
    finally:
        if seed % 8 == 0:
            gc.collect()
    return seed, ""

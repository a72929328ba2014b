"""The scenarios: each injects faults into a settled cluster under load, and repairs them.

A *failover* scenario must continue within the promised pause: another node serves the requests
meant for the failed node.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from .stage import CLIENTS, Stage, host_of

#: How long a pause or a cut lasts, in seconds.
FAULT_S: Final = 20.0
FAULT_S_QUICK: Final = 4.0


@dataclass(frozen=True)
class Scenario:
    name: str
    what: str
    play: Callable[[Stage], None]
    nodes: int = 3
    #: On hosts that can be cut off from each other.
    hosts: bool = False
    failover: bool = True
    #: Workers hold each message for seconds, and none may be processed twice.
    holds: bool = False
    #: The load is on a grouped queue, and judged by the order of its groups (`tests.group_order`).
    grouped: bool = False
    #: The load consumes, transforms and produces in transactions (`tests.transform_load`).
    transforms: bool = False
    #: Its workers are Node.js programs that use gRPC.
    node_js: bool = False
    #: The load multicasts and pushes to topics (`tests.publish_load`).
    publishes: bool = False


def _kill(stage: Stage, victim: int) -> None:
    stage.note(f"kill -9 of node {victim}")
    stage.cluster.kill(victim)
    stage.recovered("without it")
    stage.cluster.start(victim)
    stage.settled("with it")


def kill_one(stage: Stage) -> None:
    _kill(stage, stage.any_node())


def kill_leader(stage: Stage) -> None:
    _kill(stage, stage.leader())


def kill_twice(stage: Stage) -> None:
    _kill(stage, stage.leader())
    _kill(stage, stage.any_node())


def kill_all(stage: Stage) -> None:
    for number in range(stage.nodes):
        stage.cluster.kill(number)
    stage.note("kill -9 of all")
    for number in stage.rng.sample(range(stage.nodes), stage.nodes):
        stage.cluster.start(number)
        stage.note(f"started node {number}")
    stage.settled("again")


def pause(stage: Stage) -> None:
    victim = stage.any_node()
    stage.note(f"SIGSTOP of node {victim}")
    stage.cluster.pause(victim)
    time.sleep(stage.fault_s)
    stage.cluster.resume(victim)
    stage.note("SIGCONT")
    stage.settled("with it")


def _cut(stage: Stage, *, from_clients: bool) -> None:
    assert stage.network is not None
    victim = stage.any_node()
    others = [host_of(number) for number in range(stage.nodes) if number != victim]
    rest = [*others, CLIENTS] if from_clients else others
    stage.network.split([host_of(victim)], rest)
    stage.note(f"node {victim} is cut off")
    time.sleep(stage.fault_s)
    stage.network.heal()
    stage.note("healed")
    stage.settled("with it")


def cut(stage: Stage) -> None:
    _cut(stage, from_clients=True)


def cut_peers(stage: Stage) -> None:
    _cut(stage, from_clients=False)


def join(stage: Stage) -> None:
    number = stage.cluster.add()
    stage.note(f"node {number} has joined")
    stage.settled("with it")


def leave(stage: Stage) -> None:
    victim = stage.any_node()
    stage.cluster.leave(victim)
    stage.note(f"node {victim} has left")
    stage.cluster.stop(victim)
    stage.settled("without it")


def rolling(stage: Stage) -> None:
    for number in range(stage.nodes):
        code = stage.cluster.stop(number)
        assert code == 0, f"node {number} ended with exit code {code}"
        stage.note(f"node {number} has stopped")
        stage.cluster.start(number)
        stage.settled("with it")


#: Seconds between one SIGTERM and the next when all nodes are stopped.
STOP_GAPS_S: Final = (0.0, 0.0, 0.05, 0.3, 0.7, 2.0)


def stop_all(stage: Stage) -> None:
    gap_s, absent = stage.rng.choice(STOP_GAPS_S), stage.any_node()
    order = stage.rng.sample(range(stage.nodes), stage.nodes)
    for number in order:
        stage.cluster.node(number).ask_to_stop()
        time.sleep(gap_s)
    stage.note(f"SIGTERM of all, {gap_s} s apart")
    for number in order:
        code = stage.cluster.node(number).await_end()
        assert code == 0, f"node {number} ended with exit code {code}"
    stage.note("all have stopped")
    for number in order:
        if number != absent:
            stage.cluster.start(number)
    stage.recovered(f"without node {absent}")  # every partition is served by the others
    stage.cluster.start(absent)
    stage.settled("with it")


def two_of_five(stage: Stage) -> None:
    victims = stage.rng.sample(range(stage.nodes), 2)
    for victim in victims:
        stage.note(f"kill -9 of node {victim}")
        stage.cluster.kill(victim)
        stage.recovered("without it")
    for victim in victims:
        stage.cluster.start(victim)
    stage.settled("with both")


#: The faults of the other scenarios that need no hosts of their own.
_FAULTS: Final = (
    kill_one, kill_leader, kill_twice, kill_all, pause, join, leave, rolling, stop_all,
)  # fmt: skip


def any_fault(stage: Stage) -> None:
    """One of the other faults, by the seed."""
    fault = stage.rng.choice(_FAULTS)
    stage.note(f"the fault is {fault.__name__}")
    fault(stage)


_ALL = (
    Scenario("kill-one", "kill -9 of one node, later started again", kill_one),
    Scenario("kill-leader", "kill -9 of the node that leads most, later started", kill_leader),
    Scenario("kill-all", "kill -9 of all at once, then started", kill_all, failover=False),
    Scenario("pause", "SIGSTOP of one node for {:.0f} s", pause),
    Scenario("cut", "one node cut off from all for {:.0f} s, healed", cut, hosts=True),
    Scenario("cut-peers", "the same, but clients reach it still", cut_peers, hosts=True),
    Scenario("join", "a node joins", join),
    Scenario("leave", "a node leaves", leave),
    Scenario("rolling", "each node stopped and started in turn", rolling),
    Scenario(
        "rolling-hold",
        "the same as rolling, under workers that hold each message for 5 s",
        rolling,
        failover=False,
        holds=True,
    ),
    Scenario(
        "stop-all",
        "SIGTERM of all, at once or staggered, two of three started",
        stop_all,
        failover=False,
    ),
    Scenario(
        "groups",
        "kill -9 of two nodes in turn, under producers and consumers of 200 message groups",
        kill_twice,
        failover=False,
        grouped=True,
    ),
    Scenario(
        "transform",
        "kill -9 of two nodes in turn, under workers that commit and are killed themselves",
        kill_twice,
        failover=False,
        transforms=True,
    ),
    Scenario(
        "transform-node",
        "the same as transform, with workers in Node.js over gRPC",
        kill_twice,
        failover=False,
        transforms=True,
        node_js=True,
    ),
    Scenario(
        "publish",
        "one of the faults above, under multicasts and topics to eight queues of all kinds",
        any_fault,
        failover=False,
        publishes=True,
    ),
    Scenario("two-of-five", "five nodes, two killed one after the other", two_of_five, nodes=5),
)
SCENARIOS: Final = {each.name: each for each in _ALL}

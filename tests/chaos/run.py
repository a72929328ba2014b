"""One run, in a separate process: ``python -m tests.chaos.run SCENARIO SEED FOLDER [--quick]``.

Prints its outcome as one line of JSON. The folder keeps journals, logs and the nodes' data for the
analysis of a failure.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import grpc
import msgspec

import weft
from tests import group_load, publish_load, transform_load
from tests.group_order import GroupOrder
from tests.process.load import name_of
from tests.total_queue import History
from weft.client.sync_queue import Queue
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc

from .load_processes import HOLD_PACE, HOLD_ROLES, LoadProcesses
from .outcome import Outcome, judge, longest_pause
from .scenario import FAULT_S, FAULT_S_QUICK, SCENARIOS, Scenario
from .stage import Stage, stage

QUEUE: Final = "chaos"
#: Groups of a scenario with a grouped queue.
GROUPS: Final = 200
#: Messages of a scenario with transactions.
TRANSFORMED: Final = 100_000
#: The load before the fault and after it, in seconds.
BEFORE_S: Final = 1.0
AFTER_S: Final = 1.0
DRAIN_S_MAX: Final = 200.0
_DRAIN_LEASE_MS: Final = 60_000


def run(scenario: Scenario, seed: int, folder: Path, *, quick: bool) -> Outcome:
    outcome = Outcome(scenario=scenario.name, seed=seed)
    start = time.monotonic()
    rng = random.Random(seed)
    fault_s = FAULT_S_QUICK if quick else FAULT_S
    notes: list[str] = []
    try:
        with stage(folder, scenario.nodes, hosts=scenario.hosts, rng=rng, fault_s=fault_s) as scene:
            notes = scene.notes
            _play(scenario, scene, folder, outcome, quick=quick)
    except Exception:  # any exception is this run's outcome
        outcome.failure = traceback.format_exc()
    outcome.notes = notes
    outcome.total_s = time.monotonic() - start
    return outcome


def _play_groups(scenario: Scenario, scene: Stage, outcome: Outcome) -> None:
    """The load and its judge of a scenario with a grouped queue."""
    order = GroupOrder()

    def disturb() -> None:
        time.sleep(BEFORE_S + scene.rng.random())
        scene.began = time.monotonic()
        scenario.play(scene)
        outcome.fault_s = time.monotonic() - scene.began
        time.sleep(AFTER_S)

    load = group_load.run(scene.cluster.servers, QUEUE, GROUPS, order, disturb)
    outcome.counts = {"messages": asyncio.run(load), "delivered": order.delivered}
    if order.violations:
        outcome.violations = {"groups": order.violations}


def _play_publishes(scenario: Scenario, scene: Stage, outcome: Outcome) -> None:
    """The load and its judge of a scenario with multicasts and topics."""
    order = publish_load.order()

    def disturb() -> None:
        time.sleep(BEFORE_S + scene.rng.random())
        scene.began = time.monotonic()
        scenario.play(scene)
        outcome.fault_s = time.monotonic() - scene.began
        time.sleep(AFTER_S)

    load = publish_load.run(scene.cluster.servers, order, outcome.seed, disturb)
    in_doubt = asyncio.run(load)
    outcome.counts = {
        "messages": order.confirmed,
        "acknowledged": order.confirmed,
        "delivered": order.deliveries,
        "in doubt": in_doubt,
    }
    outcome.violations = order.finish()


def _play_transforms(scenario: Scenario, scene: Stage, outcome: Outcome, messages: int) -> None:
    """The load and its judge of a scenario with transactions."""

    def disturb() -> None:
        time.sleep(BEFORE_S + scene.rng.random())
        scene.began = time.monotonic()
        scenario.play(scene)
        outcome.fault_s = time.monotonic() - scene.began

    servers = scene.cluster.servers
    outcome.counts, found = transform_load.run(
        servers, messages, scene.rng, disturb, node_js=scenario.node_js
    )
    for server in servers:
        with grpc.insecure_channel(server) as channel:
            stub = weft_pb2_grpc.ClusterStub(channel)  # type: ignore[no-untyped-call]
            status = stub.Status(pb.StatusRequest(), timeout=60)
        if status.undelivered or status.dropped:
            found.append(f"{server}: {status.undelivered} undelivered, {status.dropped} dropped")
    if found:
        outcome.violations = {"transactions": found}


def _play(scenario: Scenario, scene: Stage, folder: Path, outcome: Outcome, *, quick: bool) -> None:
    if scenario.grouped:
        _play_groups(scenario, scene, outcome)
        return
    if scenario.publishes:
        _play_publishes(scenario, scene, outcome)
        return
    if scenario.transforms:
        _play_transforms(scenario, scene, outcome, TRANSFORMED // 10 if quick else TRANSFORMED)
        return
    history = History()
    with weft.connect(scene.cluster.servers) as client:
        client.create_queue(QUEUE)
    load = LoadProcesses(folder, QUEUE, scene.cluster.servers, history)
    if scenario.holds:
        load.roles, load.pace = HOLD_ROLES, HOLD_PACE
    try:
        scene.note("queue made")
        load.begin()
        scene.note("under load")
        time.sleep(BEFORE_S + scene.rng.random())
        scene.began = time.monotonic()
        history.restarted()
        scenario.play(scene)
        outcome.fault_s = time.monotonic() - scene.began
        time.sleep(AFTER_S)
        ended = time.monotonic()
        load.end()
        scene.note("the load has ended")
        history.restarted()
        drain(scene.cluster.servers, history, [QUEUE])
        scene.note("drained")
    finally:
        load.close()
    if load.troubles:
        raise AssertionError("; ".join(load.troubles))
    outcome.pause_s = longest_pause(load.producers(plain=False), scene.began, ended)
    outcome.plain_pause_s = longest_pause(load.producers(plain=True), scene.began, ended)
    judge(outcome, history, load.journals, (scene.began, ended))


def drain(servers: Sequence[str], history: History, queues: Sequence[str]) -> None:
    """Pop and ack until the queues are empty; leases of dead workers have to expire first."""
    end = time.monotonic() + DRAIN_S_MAX
    with weft.connect(list(servers)) as client:
        for queue in map(client.queue, queues):
            while not _drained(queue, history):
                assert time.monotonic() < end, f"{queue} cannot be drained: {queue.stats()}"


def _drained(queue: Queue, history: History) -> bool:
    """Take the available messages; True if none is left, leased or delayed either."""
    began = time.monotonic()
    messages = queue.pop_many(1000, wait_ms=100, lease_ms=_DRAIN_LEASE_MS)
    for message in messages:
        lent = message._lease.lent
        place = f"{lent.partition}/{lent.lsn}/{message._index}"
        history.delivered(name_of(message.body), id=place, began=began)
    if not messages:
        left = queue.stats()
        return not left.ready + left.leased + left.delayed
    names = [name_of(message.body) for message in messages]
    history.ack_attempted(*names)
    try:
        queue.ack_many(messages)
    except weft.LeaseLost:  # a lead moved just then: the messages are delivered again
        return False
    history.ack_confirmed(*names)
    return False


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that child processes are ended
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("seed", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    outcome = run(SCENARIOS[asked.scenario], asked.seed, asked.folder, quick=asked.quick)
    print(msgspec.json.encode(outcome).decode(), flush=True)
    return 0 if outcome.ok else 1


if __name__ == "__main__":
    sys.exit(main())

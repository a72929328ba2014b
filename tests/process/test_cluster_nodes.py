"""Real clusters in operation: nodes join, fail, return, move, leave."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import weft
from tests.contract.served import eventually
from weft.client.admin.cluster import ClusterCalls
from weft.client.admin.cluster_health import ClusterHealth
from weft.client.cli.main import cli
from weft.node_process import NodeProcess, free_ports
from weft.testing import Cluster, cluster

pytestmark = pytest.mark.process

COUNT = 300
PATIENT_MS = 100_000


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for the whole file: the tests use it one after the other."""
    with cluster(3, data=tmp_path_factory.mktemp("three"), durability="os") as made:
        yield made


@pytest.fixture
def three(shared: Cluster) -> Cluster:
    """A settled cluster of three nodes before each test."""
    for number in range(3):
        if not shared.node(number).running:
            shared.start(number)
    shared.settled()
    return shared


def health_of(made: Cluster, number: int = 0) -> ClusterHealth:
    return ClusterHealth.of(ClusterCalls([made.node(number).grpc]).places())


def fill(made: Cluster) -> None:
    with weft.connect(made.servers, timeout_ms=PATIENT_MS) as client:
        client.create_queue("kept")
        for number in range(0, COUNT, 10):
            bodies = [str(body).encode() for body in range(number, number + 10)]
            client.queue("kept").push_many(bodies)


def drain(made: Cluster) -> list[int]:
    """The messages delivered until none is left.

    A move of a partition voids its leases: leased messages are delivered again, so each body counts
    once.
    """
    found: set[int] = set()
    end = time.monotonic() + 100
    with weft.connect(made.servers, timeout_ms=PATIENT_MS) as client:
        queue = client.queue("kept")
        # Messages leased to a dead consumer return when the lease expires.
        while (batch := queue.pop_many(1000, wait_ms=1000)) or (
            len(found) < COUNT and time.monotonic() < end
        ):
            found |= {int(message.body) for message in batch}
            try:
                queue.ack_many(batch)
            except weft.LeaseLost:
                continue
    return sorted(found)


def told(made: Cluster, *words: str, code: int = 0) -> Any:
    result = CliRunner().invoke(cli, ["-s", ",".join(made.servers), *words, "--json"])
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    return json.loads(result.stdout if code == 0 else result.stderr)


def test_three_nodes_share_the_work(three: Cluster) -> None:
    def shared(number: int) -> bool:
        seen = health_of(three, number)
        voters = [each for each in seen.nodes if each.node.voter and each.leads > 50]
        return len(voters) == 3 and seen.places.min_sync == 2

    for number in range(3):
        eventually(lambda number=number: shared(number))  # type: ignore[misc]
    fill(three)
    assert drain(three) == list(range(COUNT))


@pytest.mark.parametrize("number", [0, 2])
def test_any_one_may_be_killed_and_comes_back(three: Cluster, number: int) -> None:
    fill(three)
    three.kill(number)
    three.recovered()
    assert drain(three) == list(range(COUNT))
    fill(three)
    three.start(number)
    three.settled()
    assert drain(three) == list(range(COUNT))


def test_one_after_the_other_is_restarted(three: Cluster) -> None:
    fill(three)
    for number in range(3):
        assert three.stop(number) == 0
        three.start(number)
        three.settled()
    assert drain(three) == list(range(COUNT))


def test_all_are_killed_and_come_back(three: Cluster) -> None:
    fill(three)
    for number in range(3):
        three.kill(number)
    for number in (2, 0, 1):  # the first one waits for no other
        three.start(number)
    three.settled()
    assert drain(three) == list(range(COUNT))


def test_a_paused_node_is_missed_and_found_again(three: Cluster) -> None:
    three.pause(1)
    three.recovered()
    fill(three)
    three.resume(1)
    three.settled()
    assert drain(three) == list(range(COUNT))


def test_a_node_that_comes_back_elsewhere_is_found(three: Cluster) -> None:
    fill(three)
    three.stop(2)
    three.node(2).ports = free_ports()
    three.start(2)
    three.settled()
    assert {each.node.grpc for each in health_of(three).nodes} == set(three.servers)
    assert drain(three) == list(range(COUNT))


def serve(node: NodeProcess, seed: str) -> subprocess.CompletedProcess[str]:
    """Start a node's data with a seed of the test's choice; it is expected to exit by itself."""
    flags = [f"--data={node.data}", "--listen=127.0.0.1:0", f"--join={seed}"]
    return subprocess.run(
        [sys.executable, "-m", "weft.server.serve_command", *flags],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )


def test_a_second_cluster_is_not_joined_with_the_data_of_the_first(
    three: Cluster, tmp_path: Path
) -> None:
    with cluster(1, data=tmp_path, durability="os") as other:
        three.stop(2)
        done = serve(three.node(2), other.servers[0])
    assert done.returncode == 1
    assert "belongs to cluster" in done.stderr


def test_the_command_refuses_what_would_leave_one_copy(three: Cluster) -> None:
    three.kill(2)
    three.recovered()
    error = told(three, "cluster", "leave", three.node(1).id, "--yes", code=2)["error"]
    assert "one copy of every message" in error["message"]


def test_one_more_joins_and_another_leaves_for_good(three: Cluster) -> None:
    """The last test with this cluster: its members are different afterwards."""
    fill(three)
    added = three.add()
    eventually(lambda: all(each.leads > 20 for each in health_of(three, added).nodes))
    three.settled()
    left = three.node(1).id
    assert told(three, "cluster", "leave", left[:9], "--yes")["node"] == left
    three.leave(1)
    three.settled()
    assert left not in {each.node.id for each in health_of(three, added).nodes}
    three.stop(1)
    assert drain(three) == list(range(COUNT))
    done = serve(three.node(1), three.node(0).grpc)
    assert done.returncode == 1, done.stderr
    assert "has left this cluster for good" in done.stderr


def test_two_and_a_witness(tmp_path: Path) -> None:
    with cluster(2, data=tmp_path, durability="os", witness=True) as made:
        made.settled()

        def shared() -> bool:
            seen = {each.node.id: each for each in health_of(made).nodes}
            witness = seen.pop(made.node(2).id)
            votes = (witness.node.witness, witness.node.voter, witness.holds) == (True, True, 0)
            return votes and [each.holds for each in seen.values()] == [257, 257]

        eventually(shared)
        fill(made)
        made.kill(0)
        # Two of three votes are left, so the other node takes over every lead at once.
        other = made.node(1).id
        eventually(lambda: {p.sync[0] for p in health_of(made, 1).places.places} == {other})
        with weft.connect(made.servers, timeout_ms=PATIENT_MS) as client:
            client.queue("kept").push_many([str(COUNT + each).encode() for each in range(10)])
        made.start(0)
        made.settled()
        made.kill(1)  # entries acknowledged by one of them alone have reached the other
        other = made.node(0).id
        eventually(lambda: {p.sync[0] for p in health_of(made, 0).places.places} == {other})
        assert drain(made) == list(range(COUNT + 10))


def test_a_cluster_without_learners(tmp_path: Path) -> None:
    """The number of learners is fixed at creation; a later start with another one fails."""
    with cluster(3, data=tmp_path, durability="os", learners=0) as made:
        made.settled()
        # Except of the catalogue: every node follows the catalogue.
        eventually(lambda: sum(each.learns for each in health_of(made).nodes) == 1)
        fill(made)
        assert drain(made) == list(range(COUNT))
        first = made.node(0)
        made.stop(0)
        first.spawn({"durability": "os", "learners": 1}, [])
        with pytest.raises(weft.errors.Unavailable, match="the cluster has 0, which stays"):
            first.await_serving()

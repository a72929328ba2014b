"""A real cluster over a network that is cut: the larger side goes on, the smaller one waits."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.netns import Network, why_not
from weft.node_process import NodeProcess, Ports

pytestmark = [pytest.mark.process, pytest.mark.skipif(bool(why_not()), reason=why_not())]

NODES = ("a", "b", "c")
#: Runs on a separate host, once for each question, and prints the answer.
CLIENT = """
import json, sys, time, weft
from weft.client.admin.cluster import ClusterCalls
from weft.client.admin.cluster_health import ClusterHealth
from weft.errors import WeftError
verb, servers, *words = sys.argv[1:]
try:
    if verb == "standing":
        found = ClusterHealth.of(ClusterCalls(servers.split(","), 3).places())
        alive = sum(each.node.alive for each in found.nodes)
        print(json.dumps({"recovered": found.verdict.recovered, "alive": alive}))
        sys.exit()
    with weft.connect(servers, timeout_ms=5000 if verb == "refused" else 100_000) as client:
        queue = client.queue("cut")
        if verb == "create":
            print(json.dumps(client.create_queue("cut")))
        elif verb in ("push", "refused"):
            pushed = 0
            for number in range(int(words[0]), int(words[1])):
                queue.push(str(number).encode())
                pushed += 1
            print(json.dumps(pushed))
        elif verb == "drain":
            found, end = set(), time.monotonic() + 100
            while True:
                batch = queue.pop_many(1000, wait_ms=1000)
                # What was lent to somebody who is gone comes when its lease ends.
                if not batch and (len(found) >= int(words[0]) or time.monotonic() > end):
                    break
                found |= {int(message.body) for message in batch}
                try:
                    queue.ack_many(batch)
                except weft.LeaseLost:
                    continue
            print(json.dumps(sorted(found)))
except WeftError as error:
    print(json.dumps({"error": error.code}))
"""


class Cut:
    """Three nodes on three hosts, and a client on a fourth."""

    def __init__(self, network: Network, data: Path) -> None:
        self.network = network
        self.nodes = {
            host: NodeProcess(
                data / host, data / f"{host}.log", Ports(7700, 7701, 7703),
                network.address(host), network.within(host),
            )
            for host in NODES
        }  # fmt: skip

    def start(self) -> None:
        for host, node in self.nodes.items():
            seeds = [] if host == "a" else [self.nodes["a"].grpc]
            node.spawn({"insecure": True, "durability": "os"}, seeds)
            node.await_serving()

    def ask(self, verb: str, hosts: tuple[str, ...] = NODES, *words: object) -> Any:
        servers = ",".join(self.nodes[host].grpc for host in hosts)
        command = [sys.executable, "-c", CLIENT, verb, servers, *map(str, words)]
        return json.loads(self.network.run("client", command))

    def until(self, check: Callable[[], bool], seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while not check():
            assert time.monotonic() < end, "it did not happen in time"
            time.sleep(0.2)

    def settle(self, hosts: tuple[str, ...] = NODES) -> None:
        wanted = {"recovered": True, "alive": len(hosts)}
        self.until(lambda: bool(self.ask("standing", hosts[:1]) == wanted))

    def close(self) -> None:
        for node in self.nodes.values():
            if node.running:
                node.kill()


@pytest.fixture
def cut(tmp_path: Path) -> Iterator[Cut]:
    with Network(*NODES, "client") as network:
        made = Cut(network, tmp_path)
        try:
            made.start()
            made.settle()
            yield made
        finally:
            made.close()


def test_the_larger_side_goes_on_and_nothing_is_lost(cut: Cut) -> None:
    assert cut.ask("create") is True
    assert cut.ask("push", NODES, 0, 20) == 20
    cut.network.split(["a"], ["b", "c"])  # the client reaches all of them
    cut.settle(("b", "c"))
    assert cut.ask("push", ("b", "c"), 20, 40) == 20
    cut.network.heal()
    cut.settle()
    assert cut.ask("drain", NODES, 40) == list(range(40))


def test_the_smaller_side_acknowledges_nothing(cut: Cut) -> None:
    assert cut.ask("create") is True
    assert cut.ask("push", NODES, 0, 20) == 20
    cut.network.split(["a", "client"], ["b", "c"])
    for number in range(1000, 1003):  # at once, and after the others have failed over
        told = cut.ask("refused", ("a",), number, number + 1)
        assert isinstance(told, dict), f"acknowledged: {told}"
    cut.network.heal()
    cut.settle()
    # Unacknowledged messages may be there or not; a time-out does not prove a failure.
    assert set(range(20)) <= set(cut.ask("drain", NODES, 20)) <= {*range(20), *range(1000, 1003)}


def test_a_node_that_was_unplugged_catches_up(cut: Cut) -> None:
    assert cut.ask("create") is True
    cut.network.unplug("c")
    cut.settle(("a", "b"))
    assert cut.ask("push", ("a", "b"), 0, 20) == 20
    cut.network.heal()
    cut.settle()
    assert cut.ask("drain", NODES, 20) == list(range(20))

"""The environment of a scenario: a cluster of real nodes, on this host or on separable hosts."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.process.netns import Network
from weft.client.admin.cluster import ClusterCalls
from weft.client.admin.cluster_health import ClusterHealth, NodeHealth
from weft.node_process import NodeProcess
from weft.testing import Cluster

#: The host from which the load and the checker reach the nodes.
CLIENTS: Final = "clients"


class HostCluster(Cluster):
    """Each node on a separate host."""

    def __init__(self, data: Path, network: Network) -> None:
        super().__init__(data, {"insecure": True})
        self._network = network

    def _made(self, number: int) -> NodeProcess:
        node = super()._made(number)
        node.host = self._network.address(host_of(number))
        node.within = self._network.within(host_of(number))
        return node


def host_of(number: int) -> str:
    return f"n{number}"


@dataclass
class Stage:
    cluster: Cluster
    nodes: int
    rng: random.Random
    #: Duration of a fault that ends by itself, in seconds.
    fault_s: float
    network: Network | None = None
    #: When the fault began, by the monotonic clock; until then, when the stage was made.
    began: float = field(default_factory=time.monotonic)
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Record an event, with the time since the fault began."""
        now = time.monotonic()
        self.notes.append(f"{now - self.began:.2f} {text} ({now:.3f})")

    def any_node(self) -> int:
        return self.rng.randrange(self.nodes)

    def leader(self) -> int:
        """The node that leads most partitions."""
        health = ClusterHealth.of(ClusterCalls(self.cluster.servers).places())
        most: NodeHealth = max(health.nodes, key=lambda each: each.leads)
        return next(n for n in range(self.nodes) if self.cluster.node(n).id == most.node.id)

    def settled(self, what: str) -> None:
        self.cluster.settled()
        self.note(f"settled {what}")

    def recovered(self, what: str) -> None:
        """While a node is down: wait until the others have recovered as far as possible."""
        self.cluster.recovered()
        self.note(f"recovered {what}")


@contextmanager
def stage(
    folder: Path, nodes: int, *, hosts: bool, rng: random.Random, fault_s: float
) -> Iterator[Stage]:
    """A settled cluster; with `hosts` this process moves into the clients' network for good."""
    with ExitStack() as ends:
        network: Network | None = None
        if hosts:
            names = [host_of(number) for number in range(nodes)]
            network = ends.enter_context(Network(*names, CLIENTS))
            network.enter(CLIENTS)
            cluster: Cluster = HostCluster(folder, network)
        else:
            cluster = Cluster(folder, {})
        ends.callback(cluster.close)
        for _ in range(nodes):
            cluster.add()
        cluster.settled()
        yield Stage(cluster, nodes, rng, fault_s, network)

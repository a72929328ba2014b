"""The nodes that a pop of a stochastic queue probes: paper 1, section 2. Pure.

Each node holds the messages that were pushed there, and no list names the nodes with messages. A
consumer draws a node by weight and probes it: a pop that does not wait. After `max_hops - 1` empty
probes the pop waits at the last drawn node. `ProbeWalk` runs one pop through these steps, for a
client and for a node on behalf of a plain client; `ProbeMemory` is what a caller keeps between the
pops of one queue. As in the paper, a draw may name the same empty node again.

| access | weight of a node                                                                    |
|--------|-------------------------------------------------------------------------------------|
| even   | the same for all                                                                    |
| rates  | the rate of pushes that the node reported last, at least RATE_FLOOR of the mean     |
| near   | NEAR_SHARE of the draws go to nodes of the caller's zone, the others elsewhere      |

Departures from the paper:

- The consumer, not the probed producer, sends the next probe: a message crosses the network once.
- In the paper a request waits at its last producer for as long as it takes. Here a message may be
  at one node while all consumers wait at others. So a wait lasts WAIT_MS at most, then a new walk
  begins; every SWEEP_EVERY fruitless waits the pop probes all nodes, which finds nodes of any
  weight.
- "Nothing there" is answered only after a sweep: every node has answered since the last wait.
- A node whose rate is unknown gets the mean rate, so new nodes are found.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple, Protocol

#: How long a pop waits at one node.
WAIT_MS: Final = 1_000
#: Fruitless waits between two sweeps of a pop.
SWEEP_EVERY: Final = 3
#: The least weight of a node, as a part of the mean rate: an idle node is still probed at times,
#: and its report corrects the weight.
RATE_FLOOR: Final = 0.05
#: The part of the draws that go to nodes of the caller's zone, if both zones have nodes.
NEAR_SHARE: Final = 0.9
#: Random numbers below this choose a node.
_DRAW: Final = 1 << 48


class NodeReport(Protocol):
    """What a node reports with each answer to a pop (``ProbeReport`` on the wire)."""

    @property
    def rate(self) -> float:
        """Messages pushed to the node per second."""
        ...

    @property
    def max_hops(self) -> int: ...
    @property
    def access(self) -> str: ...


class Probe(NamedTuple):
    """Pop at this node, waiting there for up to `wait_ms`. Then report the result."""

    node: str
    wait_ms: int


class ProbeMemory:
    """What a caller knows of one stochastic queue, and the counts of its pops."""

    def __init__(self, report: NodeReport) -> None:
        self.max_hops, self.access = report.max_hops, report.access
        self._rates: dict[str, float] = {}
        #: Pops that began, probes, and probes that found nothing.
        self.walks = self.probes = self.empty = 0

    def learn(self, node: str, report: NodeReport) -> None:
        """Takes the report in a node's answer: updated settings count from the next walk on."""
        self.max_hops, self.access = report.max_hops, report.access
        self._rates[node] = report.rate

    def weights(self, nodes: Sequence[str], near: Collection[str]) -> list[float]:
        """The weight of each node; never all zero."""
        if self.access == "rates":
            known = [self._rates[node] for node in nodes if node in self._rates]
            mean = sum(known) / len(known) if known else 0.0
            if mean > 0:
                floor = RATE_FLOOR * mean
                return [max(self._rates.get(node, mean), floor) for node in nodes]
        elif self.access == "near":
            here = sum(node in near for node in nodes)
            if 0 < here < len(nodes):
                inside, outside = NEAR_SHARE / here, (1 - NEAR_SHARE) / (len(nodes) - here)
                return [inside if node in near else outside for node in nodes]
        return [1.0] * len(nodes)

    def forget(self, nodes: Collection[str]) -> None:
        """Drops the rates of nodes that are not in the cluster any more."""
        for node in self._rates.keys() - nodes:
            del self._rates[node]


class ProbeWalk:
    """The walks of one pop: `next` names a node, the caller reports `found`, `empty`, `failed`.

    States: probing (fewer than `max_hops` probes of this walk), waiting at the last node, sweeping.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        memory: ProbeMemory,
        random: Callable[[int], int],
        near: Collection[str] = (),
    ) -> None:
        assert nodes, "a cluster has at least one node"
        self._nodes = list(nodes)
        self._memory = memory
        self._random = random
        memory.forget(nodes)
        self._weights = memory.weights(nodes, near)
        self._total = sum(self._weights)
        self._hops = 0
        self._waits = 0
        self._sweep: deque[str] = deque()
        self._swept = False
        #: Nodes that had nothing since the last wait began, and nodes that did not answer.
        self._empty: set[str] = set()
        self.unsure: set[str] = set()
        memory.walks += 1

    def next(self, left_ms: int) -> Probe | None:
        """The next probe; None: every node has answered that it has nothing, or did not answer
        (`unsure`), and the time is over."""
        memory = self._memory
        while self._sweep:
            node = self._sweep.popleft()
            if node not in self._empty:
                return self._probe(node, 0)
        if left_ms <= 0:
            if self._hops < memory.max_hops and not self._swept and not self._waits:
                return self._probe(self._draw(), 0)
            if self._swept:
                return None
            self._swept = True
            self._plan_sweep()
            return self.next(left_ms)
        if self._hops >= memory.max_hops:  # a new walk
            self._hops = 0
            self._waits += 1
            if self._waits % SWEEP_EVERY == 0:
                self._plan_sweep()
                return self.next(left_ms)
        if self._hops < memory.max_hops - 1:
            return self._probe(self._draw(), 0)
        self._empty.clear()
        return self._probe(self._draw(), min(left_ms, WAIT_MS))

    def empty(self, node: str) -> None:
        """The node had nothing, at the end of the wait if there was one."""
        self._memory.empty += 1
        self._empty.add(node)
        self.unsure.discard(node)

    def failed(self, node: str) -> None:
        """The node did not answer, and may hold messages."""
        self._empty.add(node)
        self.unsure.add(node)

    # --- inside ---

    def _plan_sweep(self) -> None:
        self._sweep.extend(_shuffled(self._nodes, self._random))

    def _probe(self, node: str, wait_ms: int) -> Probe:
        self._hops += 1
        self._memory.probes += 1
        return Probe(node, wait_ms)

    def _draw(self) -> str:
        mark = self._random(_DRAW) / _DRAW * self._total
        for node, weight in zip(self._nodes, self._weights, strict=True):
            mark -= weight
            if mark < 0:
                return node
        return self._nodes[-1]


def _shuffled(nodes: Sequence[str], random: Callable[[int], int]) -> list[str]:
    order = list(nodes)
    for last in range(len(order) - 1, 0, -1):
        pick = random(last + 1)
        order[last], order[pick] = order[pick], order[last]
    return order

"""The order in which a pop asks nodes for a queue's messages: paper 4, section 4.2.2. Pure.

The messages of a queue are on many nodes, and a pop asks one node at a time. The paper's order: the
local node, the node with messages at the last pop, a random node, then the queue's metadata list,
which names the nodes with messages; if the list is empty, wait at the list for a wake-up.
`PopSearch` runs one pop through these steps, for a client and for a node on behalf of a client; the
search returns the next step (`next`) and the caller reports the result. `SearchMemory` is the state
that a caller keeps between the pops of one queue.

Departures from the paper:

- A node that returned messages and has more left is a known holder. A search asks holders first,
  the least recently asked holder before the others: a busy consumer asks holders in turn and
  starves no node.
- A consumer with a local node that is never empty would not search further. So after LIST_EVERY
  successful pops the search asks the list first, and the list's nodes join the known holders.
- The list is soft state: an update may be in flight. Before a search reports an empty queue, the
  search asks the nodes not asked yet (SWEEP_MAX at most), and again after each wait that ended with
  nothing, so a lost update delays a message but does not hide the message.
- A list may name a node that other woken consumers have just emptied. A consumer sent to an empty
  node pauses before the next wait, longer each time.
- An empty node does not report to the list's owner if the caller does: the caller's next request
  goes to the owner in any case. Until then the search memory holds the nodes' reports (`fallen`).
  The caller promises the report only if the owner has said that the owner accepts such reports.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from weft import limits
from weft.probe_walk import NodeReport, ProbeMemory

#: Successful pops between two requests for the metadata list.
LIST_EVERY: Final = 16
#: After a list without new nodes the interval doubles, up to this: each request is a hop.
LIST_EVERY_MAX: Final = 256
#: Nodes that one search asks without a hint: in a larger cluster the list alone must suffice.
SWEEP_MAX: Final = 16
#: The pause after a wait with a false wake-up; the pause doubles up to the maximum.
PAUSE_MS: Final = 10
PAUSE_MS_MAX: Final = 250
#: Queues with a remembered search memory; the oldest entries are dropped first.
MEMORIES_MAX: Final = 1_024


@dataclass(frozen=True, slots=True)
class AskNode:
    """Pop at this node, without waiting. Then call `found`, `empty` or `failed`."""

    node: str


@dataclass(frozen=True, slots=True)
class AskMetadataList:
    """Request the metadata list from the primary of the queue's name. Then call `told`."""


@dataclass(frozen=True, slots=True)
class WaitAtMetadataList:
    """All nodes were asked: pause, then wait at the metadata list for a node with messages.

    Then call `told`; or end the search, when there is no time left to wait.
    """

    pause_ms: int


Step = AskNode | AskMetadataList | WaitAtMetadataList


class SearchMemory:
    """The remembered state of one queue: nodes with messages left, in turn, and the last holder.

    Threads may share one: each change is one step on a dict, and a lost update costs a hop.
    """

    def __init__(self) -> None:
        self._holders: dict[str, None] = {}
        self.last: str | None = None
        #: Successful pops since the last list, and the number of pops until the next request.
        self.unlisted = 0
        self.list_every = LIST_EVERY
        #: Searches, and the searches' requests that left the local node.
        self.searches = 0
        self.hops = 0
        #: True if the list's owner accepts reports of empty nodes from this caller; and the reports
        #: collected since the caller's last request to the owner.
        self.heeded = False
        self._fallen: dict[str, tuple[int, int]] = {}
        #: Of a stochastic queue, since its first answer: pops probe the nodes (``probe_walk``).
        self.probes: ProbeMemory | None = None

    def reported(self, node: str, report: NodeReport | None) -> None:
        """Takes the report in a node's answer; None: the queue is not stochastic."""
        if report is None:
            self.probes = None
            return
        if self.probes is None:
            self.probes = ProbeMemory(report)
        self.probes.learn(node, report)

    def holders(self) -> list[str]:
        """Nodes known to have messages left, the least recently asked first."""
        return list(self._holders)

    def found(self, node: str, left: int) -> None:
        self.last = node
        self.unlisted += 1
        self._holders.pop(node, None)
        if left:
            self._holders[node] = None  # at the end: the other holders come first

    def empty(self, node: str) -> None:
        self._holders.pop(node, None)

    def fell(self, node: str, last: tuple[int, int] | None) -> None:
        """The node is empty, and `last` is the node's newest announcement made void by that."""
        if last is not None and len(self._fallen) < limits.FALLEN_MAX:
            self._fallen[node] = last

    def fallen(self) -> dict[str, tuple[int, int]]:
        """The reports for the list's owner, returned once: if the request with the reports is lost,
        the nodes report themselves with a ping."""
        fallen, self._fallen = self._fallen, {}
        return fallen

    def use_list(self, nodes: Iterable[str]) -> None:
        """Add the list's nodes to the holders, behind the known holders."""
        self.unlisted = 0
        before = len(self._holders)
        for node in nodes:
            self._holders.setdefault(node)
        news = len(self._holders) > before
        self.list_every = LIST_EVERY if news else min(2 * self.list_every, LIST_EVERY_MAX)


class SearchMemories:
    """The search memories of a client's queues."""

    def __init__(self) -> None:
        self._memories: OrderedDict[str, SearchMemory] = OrderedDict()

    def of(self, queue: str) -> SearchMemory:
        search_memory = self._memories.get(queue)
        if search_memory is None:
            # Two threads may both create one: losing one of them costs one hop.
            search_memory = self._memories[queue] = SearchMemory()
            if len(self._memories) > MEMORIES_MAX:
                self._memories.popitem(last=False)
        return search_memory


class PopSearch:
    """One pop. `nodes` are the nodes that may hold messages; `entropy` is a random number.

    A `patient` search relies on the metadata list: the search asks known holders and the local
    node, then waits at the list at once. Use `patient` for a pop that waits long enough for an
    announcement in flight to arrive. After a fruitless wait the search asks one random node, to
    find a node that cannot reach the list's owner. So waiting costs a number of messages that does
    not depend on the number of nodes.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        local: str | None,
        search_memory: SearchMemory,
        entropy: int,
        *,
        patient: bool = False,
    ) -> None:
        assert nodes, "a cluster has at least one node"
        self._nodes = _shuffled(nodes, entropy)
        self._known = frozenset(nodes)
        self._local = local
        self._trail = search_memory
        holders = [node for node in search_memory.holders() if node in self._known]
        hints = [local] if patient else [local, search_memory.last, self._nodes[0]]
        self._plan = deque([*holders, *(hint for hint in hints if hint in self._known)])
        self._asked: set[str] = set()
        self._list_first = bool(holders) and search_memory.unlisted >= search_memory.list_every
        self.patient = patient
        self._listed = self._swept = patient
        self._waited = False
        self._misses = self._probes = 0
        #: Nodes that did not answer and may hold messages.
        self.unsure: set[str] = set()
        #: Requests that left the local node so far.
        self.hops = 0
        search_memory.searches += 1

    # --- the next step ---

    def next(self) -> Step:
        if self._list_first:
            self._list_first, self._listed = False, True
            return AskMetadataList()
        node = self._planned()
        if node is not None:
            return self._ask(node)
        if not self._listed:
            self._listed = True
            return AskMetadataList()
        if not self._swept:
            self._swept = True
            self._plan.extend(self._nodes[:SWEEP_MAX])
            return self.next()
        self._misses += self._waited
        self._waited = True
        pause_ms = min(PAUSE_MS_MAX, PAUSE_MS << min(self._misses - 1, 16)) if self._misses else 0
        return WaitAtMetadataList(pause_ms)

    def more(self) -> AskNode | None:
        """After a find, with room for more messages: a known holder not asked yet."""
        for node in self._trail.holders():
            if node in self._known and node not in self._asked:
                return self._ask(node)
        return None

    # --- results of a step ---

    def found(self, node: str, left: int) -> None:
        """The node returned messages and has `left` messages left."""
        self.unsure.discard(node)
        self._trail.found(node, left)

    def empty(self, node: str) -> None:
        self.unsure.discard(node)
        self._trail.empty(node)

    def failed(self, node: str) -> None:
        """The node did not answer. The search continues without the node."""
        self.unsure.add(node)
        self._trail.empty(node)

    def knows(self, nodes: Sequence[str]) -> bool:
        """True if the search asks one of the nodes when the list names them."""
        return not self._known.isdisjoint(nodes)

    def use_list(self, nodes: Sequence[str]) -> None:
        """The list, after `AskMetadataList` or `WaitAtMetadataList`; empty after a wait in vain."""
        self._count()
        named = [node for node in nodes if node in self._known]
        self._trail.use_list(named)
        if not self._waited:
            self._plan.extend(named)
            return
        self._asked.clear()
        if named:
            self._plan.extend(named)
            return
        self._waited = False
        self._misses = 0
        if self.patient:
            self._plan.append(self._nodes[self._probes % len(self._nodes)])
            self._probes += 1
        else:
            self._swept = False

    # --- inside ---

    def _planned(self) -> str | None:
        while self._plan:
            node = self._plan.popleft()
            if node not in self._asked:
                return node
        return None

    def _ask(self, node: str) -> AskNode:
        self._asked.add(node)
        if node != self._local:
            self._count()
        return AskNode(node)

    def _count(self) -> None:
        self.hops += 1
        self._trail.hops += 1


def _shuffled(nodes: Sequence[str], entropy: int) -> list[str]:
    """The nodes, the first ones in random order: a Fisher-Yates shuffle driven by `entropy`.

    Shuffles only as many nodes as one search asks without a hint: a thousand nodes do not cost a
    thousand steps.
    """
    order = list(nodes)
    for first in range(min(len(order) - 1, SWEEP_MAX)):
        entropy, pick = divmod(entropy, len(order) - first)
        order[first], order[first + pick] = order[first + pick], order[first]
    return order

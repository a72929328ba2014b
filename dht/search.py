"""Which node to ask for a queue's messages: the search of paper 4, section 4.2.2. Pure.

A queue lies on many nodes, and a pop asks one of them for what it holds. The paper's order: the
local node, the node that had something last, a random one, then the queue's metadata list, which
names the nodes that hold something; if none does, wait there and be woken. `Search` is one pop's
walk along these steps, for a client and for a node on behalf of one; it says what to do (`next`)
and is told what came of it. `Trail` is what a caller remembers between the pops of one queue.

Where it departs from the paper:

- A node that gave something and has more left is a known holder. Holders are asked first, the one
  asked longest ago before the others: a busy consumer goes round and starves no node.
- A consumer whose own node is never empty would not look further. So after LIST_EVERY pops that
  found something, the list is asked first, and its nodes join the round.
- The list is soft state: an update may be on its way. Before a search says that there is nothing
  it asks the nodes that it has not asked yet (SWEEP_MAX at most), and again after each wait that
  ended with nothing, so that a lost update delays a message and does not hide it.
- A list may name a node that has just been emptied, by others whom it woke as well. Whoever was
  sent there for nothing pauses before the next wait, longer each time.
- A node that has nothing left does not tell the keeper of the list if the caller does: he goes
  there next in any case. What such nodes said (`fallen`) is in the trail until then. That promise
  is made only where the keeper has said that it heeds it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from weft import limits

#: Pops that found something between two looks at the metadata list.
LIST_EVERY: Final = 16
#: A list that says nothing new is looked at half as often, down to this: each look is a hop.
LIST_EVERY_MAX: Final = 256
#: Nodes that one search asks without a hint: in a larger cluster the list alone must do.
SWEEP_MAX: Final = 16
#: The pause after a wait that was woken for nothing; it doubles up to the most.
PAUSE_MS: Final = 10
PAUSE_MS_MAX: Final = 250


@dataclass(frozen=True, slots=True)
class Ask:
    """Pop at this node, without waiting. Then say `found`, `empty` or `failed`."""

    node: str


@dataclass(frozen=True, slots=True)
class Where:
    """Ask for the metadata list, at the primary of the queue's name. Then say `told`."""


@dataclass(frozen=True, slots=True)
class Wait:
    """All were asked: pause, then wait at the metadata list for a node that has something.

    Then say `told`; or end here, when there is no time left to wait.
    """

    pause_ms: int


Step = Ask | Where | Wait


class Trail:
    """What is remembered of one queue: who has messages left, in turn, and who had some last.

    Threads may share one: each change is one step on a dict, and a lost update costs a hop.
    """

    def __init__(self) -> None:
        self._holders: dict[str, None] = {}
        self.last: str | None = None
        #: Finds since the list was seen, and how many there are to be before the next look.
        self.unlisted = 0
        self.list_every = LIST_EVERY
        #: Searches, and questions in them that left the local node.
        self.searches = 0
        self.hops = 0
        #: Whether the keeper of the list takes from this caller what nodes said when they had
        #: nothing left; and what they said since it was asked last.
        self.heeded = False
        self._fallen: dict[str, tuple[int, int]] = {}

    def holders(self) -> list[str]:
        """Those known to have messages left, the one asked longest ago first."""
        return list(self._holders)

    def found(self, node: str, left: int) -> None:
        self.last = node
        self.unlisted += 1
        self._holders.pop(node, None)
        if left:
            self._holders[node] = None  # at the end: the others have their turn first

    def empty(self, node: str) -> None:
        self._holders.pop(node, None)

    def fell(self, node: str, last: tuple[int, int] | None) -> None:
        """It has nothing left, and said up to which of its words that is news."""
        if last is not None and len(self._fallen) < limits.FALLEN_MAX:
            self._fallen[node] = last

    def fallen(self) -> dict[str, tuple[int, int]]:
        """For the keeper of the list, once: if it does not get there, the nodes say it themselves,
        with a ping."""
        fallen, self._fallen = self._fallen, {}
        return fallen

    def told(self, nodes: Iterable[str]) -> None:
        """The list's nodes join the round, behind those that are in it."""
        self.unlisted = 0
        before = len(self._holders)
        for node in nodes:
            self._holders.setdefault(node)
        news = len(self._holders) > before
        self.list_every = LIST_EVERY if news else min(2 * self.list_every, LIST_EVERY_MAX)


class Search:
    """One pop. `nodes` are those that may hold messages; `entropy` is a random number."""

    def __init__(self, nodes: Sequence[str], local: str | None, trail: Trail, entropy: int) -> None:
        assert nodes, "a cluster has at least one node"
        self._nodes = _shuffled(nodes, entropy)
        self._known = frozenset(nodes)
        self._local = local
        self._trail = trail
        holders = [node for node in trail.holders() if node in self._known]
        hints = [local, trail.last, self._nodes[0]]
        self._plan = deque([*holders, *(hint for hint in hints if hint in self._known)])
        self._asked: set[str] = set()
        self._list_first = bool(holders) and trail.unlisted >= trail.list_every
        self._listed = self._swept = self._waited = False
        self._misses = 0
        #: Nodes that did not answer: what they hold is not known.
        self.unsure: set[str] = set()
        #: Questions that left the local node so far.
        self.hops = 0
        trail.searches += 1

    # --- what to do ---

    def next(self) -> Step:
        if self._list_first:
            self._list_first, self._listed = False, True
            return Where()
        node = self._planned()
        if node is not None:
            return self._ask(node)
        if not self._listed:
            self._listed = True
            return Where()
        if not self._swept:
            self._swept = True
            self._plan.extend(self._nodes[:SWEEP_MAX])
            return self.next()
        self._misses += self._waited
        self._waited = True
        pause_ms = min(PAUSE_MS_MAX, PAUSE_MS << min(self._misses - 1, 16)) if self._misses else 0
        return Wait(pause_ms)

    def more(self) -> Ask | None:
        """Something was found, and there is room for more: a known holder not asked yet."""
        for node in self._trail.holders():
            if node in self._known and node not in self._asked:
                return self._ask(node)
        return None

    # --- what came of it ---

    def found(self, node: str, left: int) -> None:
        """It gave messages, and has so many left."""
        self.unsure.discard(node)
        self._trail.found(node, left)

    def empty(self, node: str) -> None:
        self.unsure.discard(node)
        self._trail.empty(node)

    def failed(self, node: str) -> None:
        """It did not answer. The search goes on without it."""
        self.unsure.add(node)
        self._trail.empty(node)

    def told(self, nodes: Sequence[str]) -> None:
        """The list: after `Where`, or after `Wait`, when no node at all means a wait in vain."""
        self._count()
        named = [node for node in nodes if node in self._known]
        self._trail.told(named)
        if not self._waited:
            self._plan.extend(named)
            return
        self._asked.clear()
        if named:
            self._plan.extend(named)
        else:
            self._swept = self._waited = False
            self._misses = 0

    # --- inside ---

    def _planned(self) -> str | None:
        while self._plan:
            node = self._plan.popleft()
            if node not in self._asked:
                return node
        return None

    def _ask(self, node: str) -> Ask:
        self._asked.add(node)
        if node != self._local:
            self._count()
        return Ask(node)

    def _count(self) -> None:
        self.hops += 1
        self._trail.hops += 1


def _shuffled(nodes: Sequence[str], entropy: int) -> list[str]:
    """The first places are picked by the random number: Fisher and Yates, without a generator.

    Only as many as one search asks without a hint: a thousand nodes cost no thousand steps.
    """
    order = list(nodes)
    for first in range(min(len(order) - 1, SWEEP_MAX)):
        entropy, pick = divmod(entropy, len(order) - first)
        order[first], order[first + pick] = order[first + pick], order[first]
    return order

"""Pop on behalf of a plain client: prefetched messages first, then a search over the nodes.

A pop that may wait does not sweep the nodes: the node asks nodes known to hold messages and itself,
then waits at the queue's metadata list (`PopSearch`, patient). The wait carries the pop, so that
the list's owner can forward the pop to the next node with a message, and the holder answers this
node. A message that arrives while a consumer waits costs the announcement to the list's owner, the
forwarded pop, its answer, the ack, its answer, and the next wait, for any number of nodes.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from weft.dht import placement
from weft.dht.planner import holders
from weft.pop_search import AskNode, PopSearch, SearchMemory, WaitAtMetadataList
from weft.proto import wire

from .cluster_host import ClusterHost
from .operation import Operation, Pause, Question, Said, Step
from .prefetch import LOT_MAX, Piece, PrefetchedLots, cut
from .primary_operations import passes
from .probe_pop import ProbePop

#: Queues with a remembered search memory, at most.
_TRAILS_MAX: Final = 10_000
#: A wait at a metadata list is renewed after this time: a lost message delays a wake-up by no more.
_WAIT_MS: Final = 3_000
#: A pop that waits for at least this long relies on the metadata list: announcements of earlier
#: pushes have arrived by then.
_PATIENT_MS: Final = 100


class RemotePop:
    """The memory of a node between the pops of its plain clients."""

    def __init__(self, cluster: ClusterHost) -> None:
        self._cluster = cluster
        self._trails: dict[str, SearchMemory] = {}
        self.prefetched = PrefetchedLots()
        self.probing = ProbePop(cluster)
        #: Searches, and their questions that left this node.
        self.searches = self.hops = 0

    def pop(self, request: wire.Pop, payload: Sequence[bytes]) -> Operation:
        report = self._cluster.probe(request.queue)
        if report is not None:
            return self.probing.pop(request, payload, report)
        return self._search_nodes(request)

    def _search_nodes(self, request: wire.Pop) -> Operation:
        found = self.prefetched.take(
            request.queue, request.lease_ms, request.limit, self._cluster.now
        )
        if found:
            return self._hand_out(request, found)
        left_ms = request.wait_ms
        search_memory = self._trail(request.queue)
        while True:
            view = self._cluster.view
            search = self._search(search_memory, patient=request.wait_ms >= _PATIENT_MS)
            while self._cluster.view is view:
                step = search.next()
                if isinstance(step, AskNode):
                    said = yield from self._ask(search, search_memory, step.node, request)
                    if said is not None:
                        return self._ended(search, said)
                    continue
                waits = isinstance(step, WaitAtMetadataList)
                pause_ms = step.pause_ms if isinstance(step, WaitAtMetadataList) else 0
                if waits and left_ms <= 0:
                    return self._ended(search, (wire.Popped([]), ()))
                if pause_ms:
                    yield Pause(pause_ms * 1000)
                wait_ms = min(left_ms, _WAIT_MS) if waits else 0
                answer, frames, node = yield from self._where(search_memory, request, wait_ms)
                if isinstance(answer, wire.Popped):
                    said = self._popped(search, search_memory, node, request, (answer, frames))
                    if said is not None:
                        return self._ended(search, said)
                    continue
                if not isinstance(answer, wire.Nodes):
                    return answer, frames
                search_memory.heeded = answer.heeds
                in_vain = waits and not answer.nodes
                left_ms -= pause_ms + (wait_ms if in_vain else 0)
                search.use_list(answer.nodes)
                if in_vain and not search.patient:
                    break

    def _trail(self, queue: str) -> SearchMemory:
        if len(self._trails) >= _TRAILS_MAX:
            self._trails.clear()
        return self._trails.setdefault(queue, SearchMemory())

    def _search(self, search_memory: SearchMemory, *, patient: bool) -> PopSearch:
        cluster = self._cluster
        nodes = holders(cluster.view) or [cluster.node]
        local = cluster.node if cluster.node in nodes else None
        return PopSearch(nodes, local, search_memory, cluster.random(1 << 62), patient=patient)

    def _ended(self, search: PopSearch, said: Said) -> Said:
        self.searches += 1
        self.hops += search.hops
        return said

    def _where(
        self, search_memory: SearchMemory, request: wire.Pop, wait_ms: int
    ) -> Generator[Step, list[Said], tuple[wire.AnyAnswer, Sequence[bytes], str]]:
        """Asks the owner of the queue's list. The answer is a list of nodes, or messages from the
        node in third position of the result."""
        cluster = self._cluster
        number = placement.of_text(request.queue, cluster.view.catalogue)
        pop = wire.Pop(request.queue, request.limit, 0, request.lease_ms) if wait_ms else None
        while True:
            owner = cluster.view.places[number].primary
            where = wire.Where(request.queue, wait_ms, search_memory.fallen(), pop)
            answered_by: list[str] = []
            ((answer, frames),) = yield [Question(owner, where, answered_by=answered_by)]
            if not passes(answer):
                return answer, frames, answered_by[0] if answered_by else owner
            yield Pause()

    def _ask(
        self, search: PopSearch, search_memory: SearchMemory, node: str, request: wire.Pop
    ) -> Generator[Step, list[Said], Said | None]:
        """Pops at one node; None if the node delivers nothing."""
        cluster, lot = self._cluster, request.limit
        # A lot of an ordered queue, or of a group, is for one consumer.
        if node != cluster.node and lot < LOT_MAX and cluster.is_unordered(request.queue):
            lot = self.prefetched.lot(request.queue, request.lease_ms, lot, cluster.now)
        here = wire.Pop(request.queue, lot, 0, request.lease_ms, search_memory.heeded)
        (said,) = yield [Question(node, here)]
        return self._popped(search, search_memory, node, request, said)

    def _popped(
        self,
        search: PopSearch,
        search_memory: SearchMemory,
        node: str,
        request: wire.Pop,
        said: Said,
    ) -> Said | None:
        """Processes a node's answer to a pop; None if the answer has no messages."""
        answer, frames = said
        if isinstance(answer, wire.Popped):
            search_memory.fell(node, answer.fell)
        if isinstance(answer, wire.Failure):
            if not passes(answer):
                return said
            search.failed(node)
        elif isinstance(answer, wire.Popped) and answer.lent:
            search.found(node, answer.left)
            pieces = list(zip(answer.lent, frames, strict=True))
            given, rest = _share(pieces, request.limit)
            if rest:
                now = self._cluster.now
                self.prefetched.keep(request.queue, request.lease_ms, node, rest, now)
            return self._hand_out(request, given, answer.left)
        else:
            search.empty(node)
        return None

    def _hand_out(self, request: wire.Pop, pieces: list[Piece], left: int = 0) -> Said:
        count = sum(lent.count for lent, _ in pieces)
        self.prefetched.consumed(request.queue, request.lease_ms, count, self._cluster.now)
        return wire.Popped([lent for lent, _ in pieces], left), [frame for _, frame in pieces]


def _share(pieces: list[Piece], limit: int) -> tuple[list[Piece], list[Piece]]:
    """Splits the pieces into the first `limit` messages and the others."""
    given: list[Piece] = []
    for number, (lent, frame) in enumerate(pieces):
        if lent.count > limit:
            if not limit:
                return given, pieces[number:]
            first, second = cut(lent, frame, limit)
            return [*given, first], [second, *pieces[number + 1 :]]
        given.append((lent, frame))
        limit -= lent.count
    return given, []

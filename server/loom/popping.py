"""pop on behalf of a plain client: what was stolen before, then the search over the nodes."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Final

from weft.dht import placement
from weft.dht.planner import holders
from weft.dht.search import Ask, Search, Trail, Wait
from weft.proto import wire

from .errand import Errand, Pause, Question, Said, Step
from .loot import LOT, Loot, Piece, cut
from .whole import Cluster, at_primary, passes

#: Queues whose trails are remembered.
_TRAILS_MAX: Final = 10_000
#: A wait at a metadata list is asked for anew after so long: its keeper may have changed.
_WAIT_MS: Final = 1_000


class Popping:
    """What a node remembers between the pops of its plain clients."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._trails: dict[str, Trail] = {}
        self.loot = Loot()
        #: Searches, and questions in them that left this node.
        self.searches = self.hops = 0

    def pop(self, request: wire.Pop, payload: Sequence[bytes]) -> Errand:
        cluster, left_ms = self._cluster, request.wait_ms
        found = self.loot.take(request.queue, request.lease_ms, request.limit, cluster.now)
        if found:
            return _popped(found)
        while True:
            trail = self._trail(request.queue)
            search = self._search(trail)
            while True:
                step = search.next()
                if isinstance(step, Ask):
                    said = yield from self._ask(search, trail, step.node, request)
                    if said is not None:
                        self._count(search)
                        return said
                    continue
                pause_ms = step.pause_ms if isinstance(step, Wait) else 0
                wait_ms = min(left_ms, _WAIT_MS) if isinstance(step, Wait) else 0
                if isinstance(step, Wait) and left_ms <= 0:
                    self._count(search)
                    return wire.Popped([]), ()
                if pause_ms:
                    yield Pause(pause_ms * 1000)
                where = wire.Where(request.queue, wait_ms, trail.fallen())
                answer, frames = yield from self._where(where)
                if not isinstance(answer, wire.Nodes):
                    return answer, frames
                trail.heeded = answer.heeds
                left_ms -= pause_ms + (wait_ms if not answer.nodes else 0)
                search.told(answer.nodes)
                if isinstance(step, Wait) and not answer.nodes:
                    break  # with the nodes of now

    def _trail(self, queue: str) -> Trail:
        if len(self._trails) >= _TRAILS_MAX:
            self._trails.clear()
        return self._trails.setdefault(queue, Trail())

    def _search(self, trail: Trail) -> Search:
        cluster = self._cluster
        nodes = holders(cluster.view) or [cluster.node]
        local = cluster.node if cluster.node in nodes else None
        return Search(nodes, local, trail, cluster.random(1 << 62))

    def _count(self, search: Search) -> None:
        self.searches += 1
        self.hops += search.hops

    def _where(self, where: wire.Where) -> Generator[Step, list[Said], Said]:
        owner = placement.of_text(where.queue, self._cluster.view.catalogue)
        return (yield from at_primary(self._cluster, owner, where))

    def _ask(
        self, search: Search, trail: Trail, node: str, request: wire.Pop
    ) -> Generator[Step, list[Said], Said | None]:
        """What one node gives; None if that is nothing."""
        cluster, limit = self._cluster, request.limit
        steals = (
            node != cluster.node
            and self.loot.has_room
            and limit < LOT
            and cluster.is_ordered(request.queue) is False  # an ordered lot is one consumer's
        )
        lot = LOT if steals else limit
        here = wire.Pop(request.queue, lot, 0, request.lease_ms, trail.heeded)
        ((answer, frames),) = yield [Question(node, here)]
        if isinstance(answer, wire.Popped):
            trail.fell(node, answer.fell)
        if isinstance(answer, wire.Failure):
            if not passes(answer):
                return answer, frames
            search.failed(node)
        elif isinstance(answer, wire.Popped) and answer.lent:
            search.found(node, answer.left)
            pieces = list(zip(answer.lent, frames, strict=True))
            given, rest = _share(pieces, limit)
            if rest:
                self.loot.keep(request.queue, request.lease_ms, node, rest, cluster.now)
            return _popped(given, answer.left)
        else:
            search.empty(node)
        return None


def _popped(pieces: list[Piece], left: int = 0) -> Said:
    return wire.Popped([lent for lent, _ in pieces], left), [frame for _, frame in pieces]


def _share(pieces: list[Piece], limit: int) -> tuple[list[Piece], list[Piece]]:
    """The first `limit` messages, and the others."""
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

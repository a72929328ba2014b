"""Pop of a stochastic queue on behalf of a plain client: the node walks over the nodes.

The order of the probes is ``weft.probe_walk``, as in a Python client. A wait at another node is an
ordinary waiting pop there; the holder answers this node. No messages are taken ahead of a request:
the buffers of a stochastic queue are bounded, and prefetched messages would hide room.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from weft.dht.planner import holders
from weft.dht.view import View
from weft.probe_walk import ProbeMemory, ProbeWalk
from weft.proto import wire

from .cluster_host import ClusterHost
from .operation import Operation, Pause, Question
from .primary_operations import passes

#: Queues with remembered rates, at most.
_MEMORIES_MAX: Final = 10_000


class ProbePop:
    """The memory of a node between the pops of stochastic queues by its plain clients."""

    def __init__(self, cluster: ClusterHost) -> None:
        self._cluster = cluster
        self._memories: dict[str, ProbeMemory] = {}
        #: Pops that began, and their probes at other nodes.
        self.searches = self.hops = 0

    def pop(
        self, request: wire.Pop, payload: Sequence[bytes], report: wire.ProbeReport
    ) -> Operation:
        cluster = self._cluster
        until = cluster.now + request.wait_ms * 1000
        memory = self._memory(request.queue, report)
        self.searches += 1
        while True:
            view = cluster.view
            nodes = holders(view) or [cluster.node]
            walk = ProbeWalk(nodes, memory, cluster.random, _near(view, cluster.node))
            while cluster.view is view:
                probe = walk.next(max(0, until - cluster.now) // 1000)
                if probe is None and walk.unsure and cluster.now < until:
                    break  # some nodes did not answer, and there is time: walk again
                if probe is None:
                    return wire.Popped([], probe=cluster.probe(request.queue)), ()
                self.hops += probe.node != cluster.node
                here = wire.Pop(request.queue, request.limit, probe.wait_ms, request.lease_ms)
                ((answer, frames),) = yield [Question(probe.node, here)]
                if isinstance(answer, wire.Popped):
                    if answer.probe is not None:
                        memory.learn(probe.node, answer.probe)
                    if answer.lent:
                        return answer, frames
                    walk.empty(probe.node)
                elif passes(answer):
                    walk.failed(probe.node)
                else:
                    return answer, frames
            yield Pause()

    def _memory(self, queue: str, report: wire.ProbeReport) -> ProbeMemory:
        if len(self._memories) >= _MEMORIES_MAX:
            self._memories.clear()
        memory = self._memories.setdefault(queue, ProbeMemory(report))
        memory.learn(self._cluster.node, report)
        return memory


def _near(view: View, node: str) -> set[str]:
    """The members in the zone of a node; empty if the node has no zone."""
    member = view.members.get(node)
    zone = member.zone if member is not None else ""
    return {name for name, each in view.members.items() if zone and each.zone == zone}

"""Commits in a cluster with nodes of several versions.

A node of a version without commits does not understand deliveries, and would not hand over outboxes
and marks in a snapshot. So effects on several partitions are decided only while no live member is
known to be such a node: the first commit after a change of the members asks those that are new. A
member that is dead is not waited for; if it returns, it is asked.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.proto import wire
from weft.server.engine.engine import Engine

from .cluster_host import ClusterHost
from .operation import Operation, Question


class CommitMembers:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        #: Members that have confirmed that they know commits.
        self._know: set[str] = set()

    def unsure(self, cluster: ClusterHost) -> list[str]:
        """The live members that have not confirmed; a witness holds no messages."""
        members = cluster.view.members
        return [
            node
            for node in members
            if node not in self._know and not members[node].witness and cluster.alive(node)
        ]

    def confirmed(self, cluster: ClusterHost) -> bool:
        """True if all have confirmed."""
        know = not self.unsure(cluster)
        if know:
            self._engine.commits.set_peers_know_commits(True)
        return know

    def asked(
        self, cluster: ClusterHost, request: wire.Commit, payload: Sequence[bytes]
    ) -> Operation:
        """Asks the members, then handles the commit on this node."""
        nodes = self.unsure(cluster)
        said = yield [Question(node, wire.KnowsCommits()) for node in nodes]
        answers = zip(nodes, said, strict=True)
        self._know |= {node for node, (answer, _) in answers if isinstance(answer, wire.Done)}
        self._engine.commits.set_peers_know_commits(not self.unsure(cluster))
        ((answer, frames),) = yield [Question(cluster.node, request, payload, fresh=True)]
        return answer, frames

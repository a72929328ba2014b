"""Changes of the catalogue of queues, and its sync between nodes, as operations."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from weft.dht.view import View
from weft.proto import wire
from weft.proto.settings import LIMITS

from .cluster_host import ClusterHost
from .fanout import everywhere, summed
from .operation import Operation, Pause, Question, Said, Step, operation_of
from .primary_operations import OUTAGE_PATIENCE_US, at_primary


@operation_of(wire.CreateQueue, wire.CreateExpiringQueue, wire.DeleteQueue, wire.PurgeQueue)
def catalogue(
    cluster: ClusterHost, request: wire.AnyRequest, payload: Sequence[bytes]
) -> Operation:
    """Changes a record of the catalogue; answers when every live node has the change.

    A node that has not learned of a purge or delete would still accept pushes for the old queue:
    the pushes would be acknowledged, and their messages lost. So a purge or delete is answered only
    when every node that leads a partition, or may lead one at any moment, has the change.
    """
    held = 0
    empties = isinstance(request, wire.PurgeQueue | wire.DeleteQueue)
    surely = empties or isinstance(request, wire.Bind | wire.Unbind | wire.DeleteTopic)
    if isinstance(request, wire.PurgeQueue | wire.DeleteQueue):
        said, _ = yield from summed(cluster, wire.DescribeQueue(request.queue))
        if isinstance(said, wire.Queues):
            held = sum(
                info.ready + info.leased + info.delayed + info.waiting for info in said.queues
            )
    number = cluster.view.catalogue
    answer, frames = yield from at_primary(cluster, number, request)
    gone = isinstance(answer, wire.Failure) and answer.code == "QUEUE_NOT_FOUND"
    if isinstance(answer, wire.Failure) and not (gone and empties):
        return answer, frames
    yield from known_everywhere(cluster, surely=surely)
    if isinstance(answer, wire.Done) and held:
        answer = wire.Done(max(held, answer.count))
    return answer, frames


@operation_of(
    wire.CreateGroupedQueue, wire.CreateKeptQueue, wire.CreateStochasticQueue,
    wire.CreateLimitedQueue, wire.CreateGraphQueue,
)  # fmt: skip
def create_queue_with_features(
    cluster: ClusterHost, request: wire.CreateQueue, payload: Sequence[bytes]
) -> Operation:
    """Creates a grouped or stochastic queue, or one with kept leases, a share or a limit, once all
    members know these. The same version introduced kept leases and commits."""
    settings = request.settings
    refused = None
    if settings.grouped:
        refused = yield from _known_by_all(cluster, wire.KnowsGroups(), "message groups")
    if settings.keep_leases and refused is None:
        refused = yield from _known_by_all(cluster, wire.KnowsCommits(), "kept leases")
    if settings.stochastic and refused is None:
        refused = yield from _known_by_all(cluster, wire.KnowsStochastic(), "stochastic queues")
    if refused is None:
        refused = _too_small(cluster, settings.max_in_flight, ordered=settings.ordered)
    if settings.has_limits and refused is None:
        refused = yield from _known_by_all(cluster, wire.KnowsLimits(), "shares and limits")
    if settings.graphs and refused is None:
        refused = yield from _known_by_all(cluster, wire.KnowsGraphs(), "task graphs")
    if refused is not None:
        return refused, ()
    return (yield from catalogue(cluster, request, payload))


@operation_of(wire.UpdateQueue)
def update_queue(
    cluster: ClusterHost, request: wire.UpdateQueue, payload: Sequence[bytes]
) -> Operation:
    """Changes a queue's settings; a share, a limit or graphs only if every member
    knows these."""
    if any(request.changes.get(name) for name in LIMITS):
        refused = yield from _known_by_all(cluster, wire.KnowsLimits(), "shares and limits")
        limit, ordered = request.changes.get("max_in_flight"), cluster.is_ordered(request.queue)
        if refused is None and isinstance(limit, int):
            refused = _too_small(cluster, limit, ordered=ordered is True)
        if refused is not None:
            return refused, ()
    if request.changes.get("graphs"):
        refused = yield from _known_by_all(cluster, wire.KnowsGraphs(), "task graphs")
        if refused is not None:
            return refused, ()
    return (yield from catalogue(cluster, request, payload))


def _too_small(cluster: ClusterHost, limit: int, *, ordered: bool) -> wire.Failure | None:
    """Refuses a `max_in_flight` that leaves nothing for some node. Rounded up, the limit would be
    exceeded; rounded down, messages on the node would not be delivered."""
    nodes = sum(not member.witness for member in cluster.view.members.values())
    if ordered or not 0 < limit < nodes:
        return None
    words = (
        f"max_in_flight {limit} cannot be divided among {nodes} nodes: set at least {nodes}, or "
        "create the queue with ordered=True, whose messages are all on one node"
    )
    return wire.Failure("INVALID_ARGUMENT", words, False)


def _known_by_all(
    cluster: ClusterHost, question: wire.AnyRequest, what: str
) -> Generator[Step, list[Said], wire.Failure | None]:
    """Waits until every member has confirmed that it knows a feature; a failure if one does not.

    A member of an older version would lend messages regardless of groups and limits as soon as it
    leads a partition. A member that does not answer may be one: then nothing is stored.
    """
    left = yield from confirmed_by_all(cluster, question)
    if not left:
        return None
    words = (
        f"nothing was changed: {', '.join(left)} did not confirm that it knows {what}. "
        f"Start every member, with a version of weft that has {what}"
    )
    return wire.Failure("INVALID_ARGUMENT", words, False)


def confirmed_by_all(
    cluster: ClusterHost, request: wire.AnyRequest
) -> Generator[Step, list[Said], list[str]]:
    """Asks every member whether it knows a feature; returns the members that did not confirm."""
    know: set[str] = set()
    silent_at = cluster.now
    while left := [
        node
        for node, member in cluster.view.members.items()
        if node not in know and not member.witness  # a witness holds no messages
    ]:
        said = yield [Question(node, request) for node in left]
        answers = zip(left, said, strict=True)
        sure = {node for node, (answer, _) in answers if isinstance(answer, wire.Done)}
        know |= sure
        silent_at = cluster.now if sure else silent_at
        if not sure and cluster.now - silent_at >= OUTAGE_PATIENCE_US:
            return left
        if not sure:
            yield Pause()
    return []


def known_here(cluster: ClusterHost) -> Operation:
    """Waits until this node has applied everything that the catalogue has now."""
    said, frames = yield from at_primary(cluster, cluster.view.catalogue, wire.CatchUp())
    if not isinstance(said, wire.Done):
        return said, frames
    ((answer, frames),) = yield [Question(cluster.node, wire.CatchUp(said.count))]
    return answer, frames


def known_everywhere(cluster: ClusterHost, *, surely: bool) -> Generator[Step, list[Said], None]:
    """Makes every node catch up with the present catalogue. `surely`: repeats until all nodes have
    confirmed, including silent nodes, as long as the view lets them lead."""
    said, _ = yield from at_primary(cluster, cluster.view.catalogue, wire.CatchUp())
    if not isinstance(said, wire.Done):
        return
    request = wire.CatchUp(said.count)
    heard = yield from everywhere(cluster, request)
    know = {node for node, (answer, _) in heard if isinstance(answer, wire.Done)}
    while surely and (left := sorted(_may_lead(cluster.view) - know)):
        yield Pause()
        answers = yield [Question(node, request) for node in left]
        known = zip(left, answers, strict=True)
        know |= {node for node, (answer, _) in known if isinstance(answer, wire.Done)}


def _may_lead(view: View) -> set[str]:
    return {node for place in view.places for node in place.sync}


def refreshed(
    cluster: ClusterHost, request: wire.AnyRequest, payload: Sequence[bytes]
) -> Operation:
    """Answers a request for an unknown queue after a catalogue sync: the queue may be new."""
    said, nothing = yield from known_here(cluster)
    if not isinstance(said, wire.Done):
        return said, nothing  # the sync failed: the queue may exist all the same
    ((answer, frames),) = yield [Question(cluster.node, request, payload, fresh=True)]
    return answer, frames

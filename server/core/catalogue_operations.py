"""Changes of the catalogue of queues, and its sync between nodes, as operations."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from weft.dht.view import View
from weft.proto import wire

from .cluster_host import ClusterHost
from .fanout import everywhere, summed
from .operation import Operation, Pause, Question, Said, Step, operation_of
from .primary_operations import at_primary


@operation_of(wire.CreateQueue, wire.UpdateQueue, wire.DeleteQueue, wire.PurgeQueue)
def catalogue(
    cluster: ClusterHost, request: wire.AnyRequest, payload: Sequence[bytes]
) -> Operation:
    """Changes a queue's record; answers when every live node has the change.

    A node that has not learned of a purge or delete would still accept pushes for the old queue:
    the pushes would be acknowledged, and their messages lost. So a purge or delete is answered only
    when every node that leads a partition, or may lead one at any moment, has the change.
    """
    held = 0
    empties = isinstance(request, wire.PurgeQueue | wire.DeleteQueue)
    if isinstance(request, wire.PurgeQueue | wire.DeleteQueue):
        said, _ = yield from summed(cluster, wire.DescribeQueue(request.queue))
        if isinstance(said, wire.Queues):
            held = sum(info.ready + info.leased + info.delayed for info in said.queues)
    number = cluster.view.catalogue
    answer, frames = yield from at_primary(cluster, number, request)
    gone = isinstance(answer, wire.Failure) and answer.code == "QUEUE_NOT_FOUND"
    if isinstance(answer, wire.Failure) and not (gone and empties):
        return answer, frames
    yield from _known_everywhere(cluster, surely=empties)
    if isinstance(answer, wire.Done) and held:
        answer = wire.Done(max(held, answer.count))
    return answer, frames


def known_here(cluster: ClusterHost) -> Operation:
    """Waits until this node has applied everything that the catalogue has now."""
    said, frames = yield from at_primary(cluster, cluster.view.catalogue, wire.CatchUp())
    if not isinstance(said, wire.Done):
        return said, frames
    ((answer, frames),) = yield [Question(cluster.node, wire.CatchUp(said.count))]
    return answer, frames


def _known_everywhere(cluster: ClusterHost, *, surely: bool) -> Generator[Step, list[Said], None]:
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

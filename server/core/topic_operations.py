"""Topics and multicasts, as operations.

A node of an older version would misread the head of a multicast, and does not know the record of a
topic. So before the first multicast or topic of a cluster every member confirms that it knows them.
Then the catalogue records the feature, and a node that does not announce it may not join any more.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from weft.proto import wire

from .catalogue_operations import catalogue, confirmed_by_all, known_everywhere, known_here
from .cluster_host import ClusterHost
from .operation import Operation, Pause, Question, Said, Step, operation_of
from .primary_operations import OUTAGE_PATIENCE_US, at_primary, given_up, passes

AnyMulticast = wire.Multicast | wire.PushTopic


@operation_of(wire.Multicast, wire.PushTopic)
def multicast(cluster: ClusterHost, request: AnyMulticast, payload: Sequence[bytes]) -> Operation:
    """Asks the primary of the one partition that gets all copies, or coordinates."""
    failure = yield from _enabled(cluster)
    if failure is not None:
        return failure, ()
    me = cluster.view.members.get(cluster.node)
    if me is None or me.witness:
        return (yield from _anywhere(cluster, request, payload))
    since = cluster.now
    while True:
        if not cluster.destinations.are_known(request):
            said, nothing = yield from known_here(cluster)
            if not isinstance(said, wire.Done):
                return said, nothing
        number = cluster.destinations.place_of(request)
        # Without a place the request is refused: any node says why.
        node = cluster.node if number is None else cluster.view.places[number].primary
        ((answer, frames),) = yield [Question(node, request, payload, fresh=number is None)]
        if not passes(answer):
            return answer, frames
        if number is not None and (failure := given_up(cluster, number, since)):
            return failure, ()
        yield Pause()


def _anywhere(cluster: ClusterHost, request: AnyMulticast, payload: Sequence[bytes]) -> Operation:
    """For a witness, which knows no queues, and a node that the cluster removed meanwhile: asks one
    node after the other."""
    members = cluster.view.members
    since = cluster.now
    while True:
        answer: wire.AnyAnswer = wire.Failure("UNAVAILABLE", "no node answers", True)
        for node in [node for node in members if not members[node].witness]:
            ((answer, frames),) = yield [Question(node, request, payload)]
            if not passes(answer):
                return answer, frames
        if cluster.now - since >= OUTAGE_PATIENCE_US:
            return answer, ()
        yield Pause()


@operation_of(wire.CreateTopic, wire.DeleteTopic, wire.Bind, wire.Unbind)
def change_topic(
    cluster: ClusterHost, request: wire.AnyRequest, payload: Sequence[bytes]
) -> Operation:
    """Changes a topic's record; answers when every node that may take a push has the change.

    A node without it would leave a newly bound queue out of a push that begins after the bind.
    """
    if isinstance(request, wire.CreateTopic):
        failure = yield from _enabled(cluster)
        if failure is not None:
            return failure, ()
    return (yield from catalogue(cluster, request, payload))


@operation_of(wire.ListTopics, wire.DescribeTopic)
def topics(cluster: ClusterHost, request: wire.AnyRequest, payload: Sequence[bytes]) -> Operation:
    return (yield from at_primary(cluster, cluster.view.catalogue, request))


def _enabled(cluster: ClusterHost) -> Generator[Step, list[Said], wire.Failure | None]:
    if cluster.destinations.enabled:
        return None
    what = "topics and multicasts"
    return (yield from _enable(cluster, wire.KnowsMulticast(), wire.EnableMulticast(), what))


def ordered_enabled(cluster: ClusterHost) -> Generator[Step, list[Said], wire.Failure | None]:
    """Makes sure that every member knows multicasts to several ordered queues."""
    if cluster.destinations.ordered_enabled:
        return None
    what = "multicasts to several ordered queues"
    known, enable = wire.KnowsOrderedMulticast(), wire.EnableOrderedMulticast()
    return (yield from _enable(cluster, known, enable, what))


def _enable(
    cluster: ClusterHost, knows: wire.AnyRequest, enable: wire.AnyRequest, what: str
) -> Generator[Step, list[Said], wire.Failure | None]:
    unsure = yield from confirmed_by_all(cluster, knows)
    if unsure:
        words = (
            f"nothing was stored: {', '.join(unsure)} did not confirm that it knows {what}. "
            "Start every member, with a version of weft that has them"
        )
        return wire.Failure("INVALID_ARGUMENT", words, False)
    said, _ = yield from at_primary(cluster, cluster.view.catalogue, enable)
    if isinstance(said, wire.Failure):
        return said
    yield from known_everywhere(cluster, surely=True)
    return None

"""Translation between the public proto and the engine's structs.

Only the representation changes here. The engine validates values, in one place for both protocols;
this module only decides the meaning of an unset field, as ``weft.proto`` documents it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from weft.ids import MessageId
from weft.proto import weft_pb2 as pb
from weft.proto import wire
from weft.proto.settings import (
    SHARE_WHOLE,
    STOCHASTIC,
    STOCHASTIC_DEFAULTS,
    Settings,
    share_per_mille,
)

LIST_LIMIT_DEFAULT = 1000
#: The tag and the length in front of a message in a response.
_FIELD_BYTES = 6

_DEFAULTS = Settings()
_CHANGES = [field.name for field in pb.UpdateQueueRequest.DESCRIPTOR.fields][1:]

# --- queues -----------------------------------------------------------------------------------


def settings_in(settings: pb.Settings) -> Settings:
    return Settings(
        lease_ms=settings.lease_ms or _DEFAULTS.lease_ms,
        max_deliveries=settings.max_deliveries,
        dead_letter=settings.dead_letter,
        retention_ms=settings.retention_ms,
        dedup_window_ms=(
            settings.dedup_window_ms
            if settings.HasField("dedup_window_ms")
            else _DEFAULTS.dedup_window_ms
        ),
        max_messages=settings.max_messages,
        ordered=settings.ordered,
        grouped=settings.grouped,
        keep_leases=settings.keep_leases,
        share=share_per_mille(settings.share),
        rate_limit=settings.rate_limit,
        max_in_flight=settings.max_in_flight,
        expire_idle_ms=settings.expire_idle_ms,
        graphs=settings.graphs,
        kind=settings.kind,
        **_stochastic(settings),
    )


def _stochastic(settings: pb.Settings) -> dict[str, Any]:
    """The settings of a stochastic queue; set but not for this kind, they are refused later."""
    found: dict[str, Any] = dict(STOCHASTIC_DEFAULTS) if settings.kind == STOCHASTIC else {}
    if settings.HasField("buffers"):
        found["buffers"] = settings.buffers
    if settings.HasField("max_hops"):
        found["max_hops"] = settings.max_hops
    if settings.access:
        found["access"] = settings.access
    return found


def settings_out(settings: Settings) -> pb.Settings:
    return pb.Settings(
        lease_ms=settings.lease_ms,
        max_deliveries=settings.max_deliveries,
        dead_letter=settings.dead_letter,
        retention_ms=settings.retention_ms,
        dedup_window_ms=settings.dedup_window_ms,
        max_messages=settings.max_messages,
        ordered=settings.ordered,
        grouped=settings.grouped,
        keep_leases=settings.keep_leases,
        expire_idle_ms=settings.expire_idle_ms,
        kind=settings.kind,
        buffers=settings.buffers or None,
        max_hops=settings.max_hops or None,
        access=settings.access,
        share=settings.share / SHARE_WHOLE,
        rate_limit=settings.rate_limit,
        max_in_flight=settings.max_in_flight,
        graphs=settings.graphs,
    )


def create_queue(request: pb.CreateQueueRequest) -> wire.CreateQueue:
    return wire.create_request(request.queue, settings_in(request.settings))


def update_queue(request: pb.UpdateQueueRequest) -> wire.UpdateQueue:
    changes = {name: getattr(request, name) for name in _CHANGES if request.HasField(name)}
    if "share" in changes:
        changes["share"] = share_per_mille(request.share)
    return wire.UpdateQueue(request.queue, changes)


def list_queues(request: pb.ListQueuesRequest) -> wire.ListQueues:
    return wire.ListQueues(request.prefix, request.after, request.limit or LIST_LIMIT_DEFAULT)


def queue_description(info: wire.QueueInfo) -> pb.QueueDescription:
    return pb.QueueDescription(
        name=info.name,
        settings=settings_out(info.settings),
        ready=info.ready,
        leased=info.leased,
        delayed=info.delayed,
        bytes=info.bytes,
        oldest_ms=info.oldest_ms,
        pushed=info.pushed,
        delivered=info.delivered,
        acked=info.acked,
        dead_lettered=info.dead_lettered,
        expired_leases=info.expired_leases,
        duplicates=info.duplicates,
        waiting_pops=info.waiting_pops,
        reserved=info.reserved,
        staged=info.staged,
        backlog_bytes=info.backlog_bytes,
        uncounted_partitions=info.uncounted_partitions,
        missing_nodes=info.missing_nodes,
        topics=info.topics,
        probes=info.probes,
        empty_probes=info.empty_probes,
        blocked_pops=info.blocked_pops,
        blocked_us=info.blocked_us,
        full_buffers=info.full_buffers,
        room_wait_us=info.room_wait_us,
        charged_us=info.charged_us,
        charged_total_us=info.charged_total_us,
        waiting=info.waiting,
    )


def queue_list(answer: wire.Queues, bytes_max: int) -> pb.ListQueuesResponse:
    queues = [queue_description(info) for info in answer.queues]
    count = fitting(queues, bytes_max)
    return pb.ListQueuesResponse(queues=queues[:count], more=answer.more or count < len(queues))


def cancel(request: pb.CancelRequest) -> wire.Cancel:
    name = MessageId.parse(request.id)
    return wire.Cancel(request.queue, name.partition, name.producer, name.batch, name.index)


def fitting(messages: Sequence[pb.QueueDescription], bytes_max: int) -> int:
    """The number of messages that fit into one response of `bytes_max` bytes; at least one."""
    for count, total in enumerate(
        accumulate(message.ByteSize() + _FIELD_BYTES for message in messages)
    ):
        if total > bytes_max:
            return max(1, count)
    return len(messages)


# --- the table and the cluster ----------------------------------------------------------------


def compare_and_swap(request: pb.CompareAndSwapRequest) -> wire.CompareAndSwap:
    old = request.old if request.HasField("old") else None
    new = request.new if request.HasField("new") else None
    return wire.CompareAndSwap(request.key, old, new)


def view(answer: wire.ViewInfo) -> pb.ViewResponse:
    return pb.ViewResponse(
        cluster=answer.cluster,
        version=answer.version,
        partitions=answer.partitions,
        nodes=map(_node, answer.nodes),
        wire_version=answer.wire_version,
        primaries=answer.primaries,
        outage=answer.outage,
    )


def places(answer: wire.ClusterInfo) -> pb.PlacesResponse:
    return pb.PlacesResponse(
        cluster=answer.cluster,
        version=answer.version,
        min_sync=answer.min_sync,
        voters=answer.voters,
        nodes=map(_node, answer.nodes),
        places=[
            pb.Place(
                epoch=place.epoch,
                sync=place.sync,
                learners=place.learners,
                role=place.role,
                lag=place.lag,
            )
            for place in answer.places
        ],
        joining=answer.joining,
        learners=answer.learners,
        observer=answer.observer,
    )


def recover(request: pb.RecoverRequest) -> wire.Recover:
    return wire.Recover(
        list(request.lost), request.execute, request.force_voters, list(request.partitions)
    )


def recovery(answer: wire.Recovery) -> pb.RecoverResponse:
    return pb.RecoverResponse(
        lost=answer.lost,
        unreachable=answer.unreachable,
        places=[
            pb.LostPlace(
                partition=place.partition,
                sync=place.sync,
                base=place.base,
                messages=place.messages,
                more=place.more,
            )
            for place in answer.places
        ],
        quorum=answer.quorum,
        catalogue=answer.catalogue,
        done=answer.done,
    )


def join(request: pb.JoinRequest) -> wire.Join:
    return wire.Join(
        request.node, request.grpc, request.zmq, request.peer, request.key, request.witness,
        request.peer_version or 1, request.data_key, request.knows_groups,
        request.knows_commits,
        request.knows_multicast, request.knows_stochastic, request.zone,
        request.knows_limits, request.knows_graphs, request.knows_ordered_multicast,
    )  # fmt: skip


def joined(answer: wire.Joined) -> pb.JoinResponse:
    return pb.JoinResponse(cluster=answer.cluster, partitions=answer.partitions, view=answer.view)


def _node(node: wire.NodeInfo) -> pb.Node:
    return pb.Node(
        id=node.node,
        grpc=node.grpc,
        zmq=node.zmq,
        state=node.state,
        voter=node.voter,
        witness=node.witness,
        alive=node.alive,
        peer=node.peer,
        key=node.key,
        data_key=node.data_key,
        zone=node.zone,
    )


def status(answer: wire.StatusInfo) -> pb.StatusResponse:
    return pb.StatusResponse(
        node=answer.node,
        version=answer.version,
        uptime_ms=answer.uptime_ms,
        durability=answer.durability,
        queues=answer.queues,
        ready=answer.ready,
        leased=answer.leased,
        delayed=answer.delayed,
        store_bytes=answer.store_bytes,
        free_bytes=answer.free_bytes,
        reserve_bytes=answer.reserve_bytes,
        commits=answer.commits,
        cpu_us=answer.cpu_us,
        rss_bytes=answer.rss_bytes,
        peer_messages=answer.peer_messages,
        peer_bytes=answer.peer_bytes,
        searches=answer.searches,
        hops=answer.hops,
        stolen=answer.stolen,
        now_ms=answer.now_ms,
        peer_pings=answer.peer_pings,
        full=answer.full,
        limit_bytes=answer.limit_bytes,
        full_peers=answer.full_peers,
        stolen_returned=answer.stolen_returned,
        undelivered=answer.undelivered,
        dropped=answer.dropped,
    )

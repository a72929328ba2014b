"""Translation of backups between the public proto and the engine's structs."""

from __future__ import annotations

from weft.errors import InvalidArgument
from weft.proto import weft_pb2 as pb
from weft.proto import wire


def snapshot(request: pb.SnapshotRequest) -> wire.Snapshot:
    return wire.Snapshot(
        request.partition,
        request.queue if request.HasField("queue") else None,
        request.after_lsn,
        request.after_key if request.HasField("after_key") else None,
        request.graphs,
    )


def snapped(answer: wire.Snapped) -> pb.SnapshotResponse:
    rows = [pb.Row(key=key, value=value) for key, value in answer.rows]
    batches = map(_kept_out, answer.batches)
    return pb.SnapshotResponse(
        batches=batches, rows=rows, lsn=answer.lsn, key=answer.key, more=answer.more
    )


def _kept_out(kept: wire.Kept) -> pb.Kept:
    return pb.Kept(
        queue=kept.queue,
        producer=kept.producer,
        batch=kept.batch,
        count=kept.count,
        stamp_us=kept.stamp,
        priority=kept.priority,
        dedup_key=kept.dedup_key,
        parts=[
            pb.KeptPart(
                first=part.first, count=part.count, queue=part.queue, deliveries=part.deliveries,
                due_us=part.due, reason=part.reason, origin=part.origin,
                waits=part.waits,
            )
            for part in kept.parts
        ],
        payload=kept.payload,
        group=kept.group,
        tenant=kept.tenant,
    )  # fmt: skip


def restore(request: pb.RestoreRequest) -> wire.Restore:
    if len(request.backup) != 16:
        raise InvalidArgument(f"a backup's name has 16 bytes, not {len(request.backup)}")
    halves = (int.from_bytes(request.backup[:8], "big"), int.from_bytes(request.backup[8:], "big"))
    kept = _kept_in(request.kept)
    kind = wire.RestoreWaiting if any(part.waits for part in kept.parts) else wire.Restore
    return kind(request.queue, halves, request.number, kept)


def _kept_in(kept: pb.Kept) -> wire.Kept:
    parts = [
        wire.KeptPart(
            part.first, part.count, part.queue, part.deliveries, part.due_us, part.reason,
            part.origin, part.waits,
        )
        for part in kept.parts
    ]  # fmt: skip
    dedup_key = kept.dedup_key if kept.HasField("dedup_key") else None
    return wire.Kept(
        kept.queue, kept.producer, kept.batch, kept.count, kept.stamp_us, kept.priority, dedup_key,
        parts, kept.payload, kept.group if kept.HasField("group") else None,
        tenant=kept.tenant if kept.HasField("tenant") else None,
    )  # fmt: skip

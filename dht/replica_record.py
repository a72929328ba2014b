"""The persistent record of a replica, in the same synced write as the data that it describes."""

from __future__ import annotations

import msgspec


class ReplicaRecord(msgspec.Struct, array_like=True, frozen=True):
    """The persistent record of a replica. New fields are only ever added at the end."""

    promised: int = 0
    base: int = 0
    base_epoch: int = 0
    applied: int = 0
    #: A snapshot is being installed, and the state is incomplete.
    installing: bool = False


encode_replica_record = msgspec.msgpack.Encoder().encode
decode_replica_record = msgspec.msgpack.Decoder(ReplicaRecord).decode

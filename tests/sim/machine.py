"""A machine of the simulated world: its disk, its process while running, and its faults."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from weft.persistence.memory import MemoryStore
from weft.proto import wire
from weft.server.core.node_core import NodeCore

#: Length of a record's checksum, which precedes the data.
SUM_BYTES = 8


class PowerLoss(Exception):
    """Power was lost in the middle of a write."""


@dataclass
class Rot:
    """A flipped bit."""

    key: bytes
    whole: bytes
    spoilt: bytes


@dataclass
class Machine:
    name: str
    store: MemoryStore
    node_core: NodeCore
    #: Offset of the machine's clock from the world's clock, in microseconds.
    skew: int = 0
    witness: bool = False
    up: bool = True
    boots: int = 1
    frozen_until: int = 0
    wake_at: int = 0
    #: Messages that arrived and are processed in the next round.
    inbox: list[Callable[[NodeCore], None]] = field(default_factory=list)
    #: Time of the next round for gathered messages; 0: none is scheduled.
    gather_at: int = 0
    #: The next write is cut short by a power loss; the next write fails.
    tears: bool = False
    fails: bool = False
    rot: Rot | None = None
    #: The process found the flipped bit and stopped; a repair is scheduled.
    damaged: bool = False
    #: Kept down by an operator: `start` has no effect.
    parked: bool = False
    #: Never to be started again.
    gone: bool = False

    def join_request(self) -> wire.Join:
        name = self.name
        return wire.Join(
            name, "", "", name, name, self.witness,
            knows_groups=True, knows_commits=True, knows_multicast=True,
            knows_stochastic=True, knows_limits=True, knows_graphs=True,
            knows_ordered_multicast=True,
        )  # fmt: skip

    def spoil_disk(self, rng: random.Random) -> None:
        """Flip one bit of one record."""
        keys = self.store._keys
        if keys and self.rot is None:
            key = rng.choice(keys)
            whole = self.store._rows[key]
            self.store.corrupt(key, rng)
            self.rot = Rot(key, whole, self.store._rows[key])

    def restore_disk(self) -> None:
        """An operator restores the damaged record from elsewhere."""
        assert self.rot is not None
        if self.store.get(self.rot.key) == self.rot.spoilt:
            self.store.write([(self.rot.key, self.rot.whole)], sync=True)
        self.rot = None

    def record(self, key: bytes, value: bytes) -> bytes:
        """A record of the disk as it was before the damage."""
        rot = self.rot
        return rot.whole if rot is not None and (rot.key, rot.spoilt) == (key, value) else value

"""A machine of the simulated world: its disk, its process while it runs, and what is wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from weft.persistence.memory import MemoryStore
from weft.server.loom.loom import Loom

#: Of a record's checksum, which stands before its data.
SUM_BYTES = 8


class PowerLoss(Exception):
    """In the middle of a write."""


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
    loom: Loom
    #: What its clock says more than the world's.
    skew: int = 0
    witness: bool = False
    up: bool = True
    boots: int = 1
    frozen_until: int = 0
    wake_at: int = 0
    #: What came and is heard in the next round.
    inbox: list[Callable[[Loom], None]] = field(default_factory=list)
    #: When that is, if it is not for somebody else to say.
    gather_at: int = 0
    #: The next write is cut short by a power loss; fails.
    tears: bool = False
    fails: bool = False
    rot: Rot | None = None
    #: It has found the rot, and waits for somebody to decide.
    damaged: bool = False
    #: Never to be started again.
    gone: bool = False

    def spoil_disk(self, rng: random.Random) -> None:
        """One bit of one record flips."""
        keys = self.store._keys
        if keys and self.rot is None:
            key = rng.choice(keys)
            whole = self.store._rows[key]
            self.store.corrupt(key, rng)
            self.rot = Rot(key, whole, self.store._rows[key])

    def restore_disk(self) -> None:
        """An operator has brought the spoilt record back from somewhere."""
        assert self.rot is not None
        if self.store.get(self.rot.key) == self.rot.spoilt:
            self.store.write([(self.rot.key, self.rot.whole)], sync=True)
        self.rot = None

    def record(self, key: bytes, value: bytes) -> bytes:
        """A record of its disk as it was before it was spoilt."""
        rot = self.rot
        return rot.whole if rot is not None and (rot.key, rot.spoilt) == (key, value) else value

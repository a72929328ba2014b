"""The free-space reserve: when pushes are refused, and that a drained disk accepts them again."""

from __future__ import annotations

import pytest

from weft.limits import MIB
from weft.server.node.disk_reserve import DiskReserve

SECOND_US = 1_000_000
AHEAD = 32 * MIB


class Disk:
    """A disk with nothing on it but a store."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.store_bytes = MIB

    def free_bytes(self) -> int:
        return self.size_bytes - self.store_bytes

    def space(self, reserve_bytes: int) -> DiskReserve:
        return DiskReserve(self.free_bytes, lambda: self.store_bytes, reserve_bytes, AHEAD)


@pytest.mark.parametrize("mib", [300, 320, 1024, 100_000])
def test_a_disk_that_was_drained_takes_pushes_again(mib: int) -> None:
    """An empty disk of 300 MiB would not have a margin of 16 MiB above the reserve."""
    disk = Disk(mib * MIB)
    space = disk.space(256 * MIB)
    assert not space.check(0)
    disk.store_bytes = disk.size_bytes - 280 * MIB
    assert space.check(2 * SECOND_US)
    assert space.free_bytes < space.limit_bytes
    disk.store_bytes = 4 * MIB  # minimum size of LevelDB
    assert not space.check(4 * SECOND_US)


def test_just_above_the_reserve_it_stays_full() -> None:
    disk = Disk(1024 * MIB)
    space = disk.space(256 * MIB)
    disk.store_bytes = 750 * MIB
    assert space.check(2 * SECOND_US)
    disk.store_bytes = (1024 - 256 - 32 - 1) * MIB
    assert space.check(4 * SECOND_US)
    disk.store_bytes = (1024 - 256 - 32 - 17) * MIB
    assert not space.check(6 * SECOND_US)


def test_without_a_reserve_it_is_never_full() -> None:
    disk = Disk(MIB)
    assert not disk.space(0).check(0)

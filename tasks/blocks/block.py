"""A block of data: the reference that travels in arguments and results, and the row that finds it.

The reference alone is enough while the block is where it was made. Its *row* in the hash table has
all stores with the block, and the call that made the block: a reader that finds the block nowhere
makes it again by that call. The row is written in the commit of the making task, and lives as long
as the block.
"""

from __future__ import annotations

from typing import Final

import msgspec

#: The call that makes a block again is kept up to this size.
MAKER_BYTES_MAX: Final = 16 << 10
TTL_S: Final = 24 * 3600.0
TTL_S_MAX: Final = 365 * 24 * 3600.0


class Block(msgspec.Struct, array_like=True, frozen=True):
    """Data at a site: an argument or a result of tasks. New fields are added at the end.

    block = tasks.current().put_block(data)        # in one task
    data = tasks.current().read_block(block)       # in another one
    """

    job: str
    name: str
    checksum: int
    size: int
    #: The site of the maker, for the placement of tasks.
    site: str
    #: The spill folder with the block.
    store: str


class BlockRow(msgspec.Struct, array_like=True, frozen=True):
    """The row of a block. New fields are added at the end, with defaults."""

    #: Stores with the block, the newest last.
    stores: list[str]
    #: The task that made the block, and its call; empty if the call was too large.
    task: str = ""
    maker: bytes = b""


def block_row(app: str, block: Block) -> str:
    return f"tasks/{app}/b/{block.job}/{block.name}"

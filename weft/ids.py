"""Message ids: 128 bits that locate a message.

``partition (16) | producer (56) | batch (40) | index (16)``, most significant first. The producer
is a random number drawn by a client, the batch is the producer's own counter, the index is the
message's position in the batch. Because the id contains the partition, a client reaches any message
in one hop from the id alone; because the client chooses (producer, batch) before sending, the node
recognises a retried push.

The partition is a hash of (producer, batch), unless the queue or the push demands another one (see
`dht.placement`): each batch hashes afresh, which spreads a queue over all nodes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import repeat

import xxhash

from weft.errors import InvalidArgument

PARTITION_BITS, PRODUCER_BITS, BATCH_BITS, INDEX_BITS = 16, 56, 40, 16

_name = struct.Struct(">QQ")
_WORD = (1 << 64) - 1


class MessageId(int):
    """One message's id. An ``int`` underneath, 32 hexadecimal digits as text.

    text = str(orders.push(b"one"))
    orders.cancel(weft.MessageId.parse(text))
    """

    __slots__ = ()

    @classmethod
    def of(cls, partition: int, producer: int, batch: int, index: int) -> MessageId:
        return cls(
            (((partition << PRODUCER_BITS) | producer) << BATCH_BITS | batch) << INDEX_BITS | index
        )

    @classmethod
    def parse(cls, text: str) -> MessageId:
        """Returns the id of 32 hexadecimal digits. Raises InvalidArgument for any other text."""
        try:
            if len(text) != 32:
                raise ValueError
            return cls(int(text, 16))
        except ValueError:
            raise InvalidArgument(
                f"a message id is 32 hexadecimal digits, not {text[:80]!r}"
            ) from None

    @property
    def partition(self) -> int:
        """The partition that stores the message."""
        return self >> (PRODUCER_BITS + BATCH_BITS + INDEX_BITS)

    @property
    def producer(self) -> int:
        """The random number of the client that pushed the message."""
        return (self >> (BATCH_BITS + INDEX_BITS)) & ((1 << PRODUCER_BITS) - 1)

    @property
    def batch(self) -> int:
        """The number of the message's batch among those of its producer."""
        return (self >> INDEX_BITS) & ((1 << BATCH_BITS) - 1)

    @property
    def index(self) -> int:
        """The position of the message in its batch."""
        return self & ((1 << INDEX_BITS) - 1)

    def __str__(self) -> str:
        return f"{int(self):032x}"

    def __repr__(self) -> str:
        return f"MessageId({int(self):032x})"


def partition_of(producer: int, batch: int, partitions: int) -> int:
    """The partition of a batch's name, of so many partitions."""
    name = _name.pack(producer & _WORD, batch & _WORD)  # callers may pass any integers
    return xxhash.xxh3_64_intdigest(name) % partitions


def partitions_of(producer: int, batches: Sequence[int], partitions: int) -> list[int]:
    """As `partition_of` for many batches of one producer."""
    names = map(_name.pack, repeat(producer & _WORD), batches)
    return [digest % partitions for digest in map(xxhash.xxh3_64_intdigest, names)]

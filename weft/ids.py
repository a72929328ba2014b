"""Message ids: 128 bits that locate a message.

``partition (16) | producer (56) | batch (40) | index (16)``, most significant first. The producer
is a random number drawn by a client, the batch is the producer's own counter, the index is the
message's position in the batch. Because the id contains the partition, a client reaches any message
in one hop from the id alone; because the client chooses (producer, batch) before sending, the node
recognises a retried push.
"""

from __future__ import annotations

from weft.errors import InvalidArgument

PARTITION_BITS, PRODUCER_BITS, BATCH_BITS, INDEX_BITS = 16, 56, 40, 16


class MessageId(int):
    """One message's id. An ``int`` underneath, 32 hexadecimal digits as text."""

    __slots__ = ()

    @classmethod
    def of(cls, partition: int, producer: int, batch: int, index: int) -> MessageId:
        return cls(
            (((partition << PRODUCER_BITS) | producer) << BATCH_BITS | batch) << INDEX_BITS | index
        )

    @classmethod
    def parse(cls, text: str) -> MessageId:
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
        return self >> (PRODUCER_BITS + BATCH_BITS + INDEX_BITS)

    @property
    def producer(self) -> int:
        return (self >> (BATCH_BITS + INDEX_BITS)) & ((1 << PRODUCER_BITS) - 1)

    @property
    def batch(self) -> int:
        return (self >> INDEX_BITS) & ((1 << BATCH_BITS) - 1)

    @property
    def index(self) -> int:
        return self & ((1 << INDEX_BITS) - 1)

    def __str__(self) -> str:
        return f"{int(self):032x}"

    def __repr__(self) -> str:
        return f"MessageId({int(self):032x})"

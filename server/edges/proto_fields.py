"""Fields of protobuf's wire format, written and read without an object per message.

A length-delimited field is a tag byte, the length as a varint, and the bytes. Messages of one kind
repeat few lengths, so the first two are looked up by length.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message as Proto

from weft import limits

#: The index of a message in its batch, as the last four digits of its id and as two bytes.
INDEX_DIGITS: Final = tuple(b"%04x" % index for index in range(limits.BATCH_COUNT_MAX))
INDEX_BYTES: Final = tuple(index.to_bytes(2, "big") for index in range(limits.BATCH_COUNT_MAX))
#: Lengths that a cache remembers: bounds its memory when every body has a length of its own.
_CACHED_MAX: Final = 4096


def id_start(partition: int, producer: int, batch: int) -> bytes:
    """The field 1 with a message's id, up to the four digits of its index (see `weft.ids`)."""
    return b"\x0a\x20%04x%014x%010x" % (partition, producer, batch)


def varint(value: int) -> bytes:
    """A number below 2^63, least significant 7 bits first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class FieldStarts(dict[int, bytes]):
    """The tag and the length of a length-delimited field below number 16, by its length."""

    def __init__(self, number: int, *, leave_out_empty: bool = False) -> None:
        """`leave_out_empty`: an empty value is no field at all, as proto3 writes a single field."""
        super().__init__()
        assert number < 16, "the tag has one byte"
        self._tag = bytes([number << 3 | 2])
        self._leave_out_empty = leave_out_empty

    def __missing__(self, length: int) -> bytes:
        start = self._tag + varint(length)
        if not length and self._leave_out_empty:
            start = b""
        if len(self) >= _CACHED_MAX:
            self.clear()
        self[length] = start
        return start

    def field(self, value: bytes) -> bytes:
        return self[len(value)] + value


class SoleFieldStarts(dict[int, bytes]):
    """The start of a message that has one length-delimited field, by the length of the message.

    A message of length n has no other field if it begins with the bytes under n. Under a length
    that no such message has is a start that never matches.
    """

    _NEVER: Final = b"\xff\xff"

    def __init__(self, number: int) -> None:
        super().__init__()
        self._starts = FieldStarts(number, leave_out_empty=True)

    def __missing__(self, size: int) -> bytes:
        start = b"" if not size else self._NEVER
        for width in range(2, 7):
            if size >= width and len(found := self._starts[size - width]) == width:
                start = found
        if len(self) >= _CACHED_MAX:
            self.clear()
        self[size] = start
        return start


def with_bytes(kind: type[Proto], *fields: str) -> Any:
    """A class of the same wire format as `kind`, with these message fields left as bytes."""
    described = descriptor_pb2.DescriptorProto()
    kind.DESCRIPTOR.CopyToProto(described)
    for field in described.field:
        if field.name in fields:
            field.type = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES
            field.ClearField("type_name")
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{described.name}.proto", package="weft.bytes", syntax="proto3"
    )
    file.message_type.append(described)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    found = pool.FindMessageTypeByName(f"weft.bytes.{described.name}")
    return message_factory.GetMessageClass(found)

"""Data to try map-reduce on: text or records of any size, the same for the same seed.

The checksum of data is the sum of the checksums of its lines, modulo 2^64: it does not depend on
the order of the lines, so the output of a sort has the checksum of its input. It is a check of
completeness, as in TeraGen and TeraValidate, and no protection against an adversary.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import string
from collections.abc import Iterator
from typing import Final

import msgspec
import xxhash

from weft.client import arguments
from weft.errors import InvalidArgument

from .byte_size import parse_size

TEXT, RECORDS = "text", "records"
KINDS: Final = (TEXT, RECORDS)
#: The description of generated data, in its folder.
DESCRIPTION: Final = "_generated.json"
FILE_BYTES: Final = 64 << 20
BYTES_MAX: Final = 1 << 50
SEED_MAX: Final = 1 << 63
RECORD_BYTES: Final = 100
#: Text: words of the vocabulary, which occur as often as in natural language (Zipf).
WORDS: Final = 20_000
_LINE_WORDS: Final = 12
_BLOCK_LINES: Final = 2_000
_PRINTABLE: Final = bytes(33 + value % 94 for value in range(256))
_CHECKSUM_MODULUS: Final = 1 << 64


class DataCheck(msgspec.Struct, frozen=True):
    """Lines, bytes and the order-independent checksum of a folder."""

    lines: int
    bytes: int
    checksum: int


class RunningCheck:
    """The check of lines that come in blocks; each line counts with its newline."""

    def __init__(self) -> None:
        self.lines = self.bytes = self.checksum = 0

    def add(self, lines: list[bytes]) -> None:
        """Adds lines without their newlines."""
        self.lines += len(lines)
        self.bytes += sum(map(len, lines)) + len(lines)
        self.checksum = (self.checksum + sum(map(xxhash.xxh3_64_intdigest, lines))) % (
            _CHECKSUM_MODULUS
        )

    def result(self) -> DataCheck:
        return DataCheck(self.lines, self.bytes, self.checksum)


def generate(
    kind: str,
    output: str | os.PathLike[str],
    *,
    size: int | str,
    seed: int = 1,
    file_bytes: int | str = FILE_BYTES,
) -> DataCheck:
    """Writes text or records of exactly `size` bytes, and their description `_generated.json`.

        mapreduce.generate("records", "in", size="10M", seed=1)

    A record is a line of 100 bytes: a random key of 10 characters, the number of the record, and
    filler. Files have up to `file_bytes`. Raises InvalidArgument, also for a folder with files.
    """
    if kind not in KINDS:
        raise InvalidArgument(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
    total = parse_size("size", size, 0, BYTES_MAX)
    most = parse_size("file_bytes", file_bytes, 1 << 10, BYTES_MAX)
    arguments.check_integer("seed", seed, 0, SEED_MAX)
    folder = os.fspath(output)
    if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
        raise InvalidArgument(f"the output {folder} exists: choose another folder")
    os.makedirs(folder, exist_ok=True)
    check = RunningCheck()
    blocks = _sized(_records(seed) if kind == RECORDS else _text(seed), total)
    left = next(blocks, None)
    for number in itertools.count():
        if left is None and number:
            break
        with open(os.path.join(folder, f"part-{number:05d}"), "wb") as file:
            written = 0
            while left is not None and written < most:
                check.add(left)
                written += file.write(b"\n".join(left) + b"\n")
                left = next(blocks, None)
    result = check.result()
    described = {"kind": kind, "seed": seed, **msgspec.to_builtins(result)}
    with open(os.path.join(folder, DESCRIPTION), "w", encoding="utf-8") as text:
        json.dump(described, text)
    return result


def _sized(blocks: Iterator[list[bytes]], total: int) -> Iterator[list[bytes]]:
    """Blocks of lines up to so many bytes; the last line is cut."""
    while total > 0:
        lines = next(blocks)
        size = sum(map(len, lines)) + len(lines)
        if size > total:
            raw = (b"\n".join(lines) + b"\n")[: total - 1]
            yield raw.split(b"\n")
            return
        total -= size
        yield lines


def _records(seed: int) -> Iterator[list[bytes]]:
    random_bytes = random.Random(seed).randbytes
    for first in itertools.count(0, _BLOCK_LINES):
        raw = random_bytes(_BLOCK_LINES * (RECORD_BYTES - 12)).translate(_PRINTABLE)
        step = RECORD_BYTES - 12
        # Key, number, filler, and a newline: RECORD_BYTES together.
        yield [
            b"%b %010d%b" % (raw[at : at + 10], (first + n) % 10**10, raw[at + 10 : at + step])
            for n, at in enumerate(range(0, len(raw), step))
        ]


def _text(seed: int) -> Iterator[list[bytes]]:
    source = random.Random(seed)
    letters = string.ascii_lowercase
    vocabulary = [
        "".join(source.choices(letters, k=source.randint(2, 10))).encode() for _ in range(WORDS)
    ]
    weights = list(itertools.accumulate(1 / (rank + 2) for rank in range(WORDS)))
    while True:
        words = source.choices(vocabulary, cum_weights=weights, k=_BLOCK_LINES * _LINE_WORDS)
        yield [b" ".join(words[at : at + _LINE_WORDS]) for at in range(0, len(words), _LINE_WORDS)]

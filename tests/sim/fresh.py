"""Which seeds are fresh: those that the code at hand draws.

A change of the code, whatever it is, has seeds of its own, that nobody ran before; the same code
has the same ones, wherever and however often its tests run. So a failure in one place is a failure
in every other, and can be looked into before a change lands.
"""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

#: What a simulated node consists of, and the simulator itself.
_SOURCES: Final = (
    "dht/**/*.py",
    "persistence/**/*.py",
    "proto/**/*.py",
    "server/**/*.py",
    "tests/sim/**/*.py",
    "weft/*.py",
)


@cache
def first_seed() -> int:
    root = Path(__file__).parents[2]
    digest = blake2b(digest_size=5)
    for pattern in _SOURCES:
        for file in sorted(root.glob(pattern)):
            digest.update(f"{file.relative_to(root)}\n".encode())
            digest.update(file.read_bytes())
    return int.from_bytes(digest.digest())

"""Which seeds are fresh: a function of the source code.

Every change of the code draws seeds of its own, which have not run before; the same code draws the
same seeds, wherever and however often its tests run. So a failure in one place is a failure in
every other, and can be investigated before a change lands.
"""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

#: The code of a simulated node, and the simulator itself.
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

"""Sizes in text, such as 100K, 1M or 2G."""

from __future__ import annotations

import re
from typing import Final

from weft.client import arguments
from weft.errors import InvalidArgument

_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_TEXT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)


def parse_size(name: str, value: object, low: int, high: int) -> int:
    """Returns a number of bytes from 65536, "64K" or "1.5M"; K is 1024.

    Raises InvalidArgument with the name of the argument.
    """
    if isinstance(value, str):
        found = _TEXT.fullmatch(value.strip())
        if found is None:
            raise InvalidArgument(
                f"{name} must be a size such as 65536, 100K, 1M or 2G, not {value[:40]!r}"
            )
        value = int(float(found[1]) * _UNITS[found[2].upper()])
    arguments.check_integer(name, value, low, high)
    assert isinstance(value, int)
    return value

"""The check of a sorted output: in order, and with the lines of the input."""

from __future__ import annotations

import json
import operator
import os
from itertools import islice, pairwise
from typing import Final

import msgspec

from weft.errors import InvalidArgument

from .data_generator import DESCRIPTION, DataCheck, RunningCheck
from .input_split import list_input

_LINES: Final = 50_000


class Validation(msgspec.Struct, frozen=True):
    """What `validate` has found."""

    lines: int
    bytes: int
    checksum: int
    #: Each line is at least as great as the line before, across the files.
    sorted: bool
    #: The data compared with has the same lines; None without a comparison.
    complete: bool | None
    #: The first line out of order, as file and number from 1; "" if there is none.
    disorder: str = ""


def validate(
    output: str | os.PathLike[str], *, against: str | os.PathLike[str] | None = None
) -> Validation:
    """Checks that the lines of a folder are sorted, and are those of the input.

        mapreduce.validate("out", against="in").complete

    Generated input has a description, which is trusted; other input is read. The comparison is by
    lines, bytes and checksum. Raises InvalidArgument for a missing folder.
    """
    check = RunningCheck()
    disorder, last = "", b""
    for file in list_input(os.fspath(output)):
        number = 0
        with open(file.path, "rb") as lines:
            while some := [line.removesuffix(b"\n") for line in islice(lines, _LINES)]:
                check.add(some)
                if not disorder:
                    position = _disorder(last, some)
                    if position:
                        disorder = f"{file.path}, line {number + position}"
                last = some[-1]
                number += len(some)
    found = check.result()
    complete = None if against is None else found == _described(os.fspath(against))
    return Validation(found.lines, found.bytes, found.checksum, not disorder, complete, disorder)


def _disorder(last: bytes, lines: list[bytes]) -> int:
    """The number of the first line that is less than the one before; 0 if there is none."""
    if lines[0] < last:
        return 1
    if all(map(operator.le, lines, islice(lines, 1, None))):
        return 0
    return next(at for at, (left, right) in enumerate(pairwise(lines), 2) if right < left)


def _described(folder: str) -> DataCheck:
    """The check of the input: generated data is described, other data is read."""
    path = os.path.join(folder, DESCRIPTION)
    if os.path.exists(path):
        try:
            with open(path, encoding="utf-8") as text:
                found = json.load(text)
            return msgspec.convert(
                {name: found[name] for name in DataCheck.__struct_fields__}, DataCheck
            )
        except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
            raise InvalidArgument(f"{path} is no description of generated data: {error}") from None
    check = RunningCheck()
    for file in list_input(folder):
        with open(file.path, "rb") as lines:
            while some := [line.removesuffix(b"\n") for line in islice(lines, _LINES)]:
                check.add(some)
    return check.result()

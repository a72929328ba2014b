"""Batches of table keys: one request for each node that leads partitions of the keys.

In a cluster of one node a batch is one request, and the client hashes no key. Otherwise the client
groups the keys by the primary of their partition. Each request is retried like any other; if
partitions have moved, the keys of the request are grouped again. The name of the batch stays the
same, so no partition executes the batch twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from weft import limits
from weft.dht import placement
from weft.errors import DeadlineExceeded, InvalidArgument, TooLarge, WeftError
from weft.proto import wire

from . import arguments
from .producer.batch import Body
from .routing.router import Router
from .routing.session import attempt, pause_s
from .transport.link import Link

A = TypeVar("A", bound=wire.Answer)

#: Makes the request for the keys at some positions (None: for all), on these partitions.
RequestOf = Callable[[Sequence[int] | None, list[int]], wire.AnyRequest]

#: Keys that an error names; it counts the others.
_NAMED_MAX: Final = 5
#: The links of a cluster of one node all lead to that node.
_ANY_PARTITION: Final = 0


async def ask_by_node(
    router: Router, keys: Sequence[str], request_of: RequestOf, expected: type[A], deadline: float
) -> list[tuple[Sequence[int], A]]:
    """Returns the answers, each with the positions of its keys.

    Raises the first permanent failure, or the last transient one at the deadline; the error names
    the keys without an answer.
    """
    ends: list[tuple[Sequence[int], A]] = []
    left: Sequence[int] = range(len(keys))
    tries = silences = 0
    while True:
        seen, groups = router.view, _groups(router, keys, left)
        answers = await router.runtime.together(
            [
                attempt(
                    router,
                    link,
                    request_of(positions if len(positions) < len(keys) else None, numbers),
                    expected,
                    deadline,
                    silences,
                )
                for link, positions, numbers in groups
            ]
        )
        failures: list[tuple[Link, WeftError]] = []
        open_: list[int] = []
        for (link, positions, _), answer in zip(groups, answers, strict=True):
            if isinstance(answer, WeftError):
                failures.append((link, answer))
                open_ += positions
            else:
                ends.append((positions, answer[0]))
        if not failures:
            return ends
        left, pause = sorted(open_), pause_s(tries)
        final = next((each for _, each in failures if not each.retriable), None)
        if final is not None or time.monotonic() + pause >= deadline:
            raise _naming(final or failures[-1][1], keys, left)
        tries += 1
        silences += any(isinstance(each, DeadlineExceeded) for _, each in failures)
        for link, failure in failures:
            await router.again(link, failure, seen, pause / len(failures), deadline)


async def ask_every_node(
    router: Router,
    request_of: Callable[[list[int]], wire.AnyRequest],
    expected: type[A],
    deadline: float,
) -> list[A]:
    """Asks all primaries, each for its partitions; asks all again after a transient failure."""
    tries = silences = 0
    while True:
        seen, groups = router.view, by_link(router, range(router.partitions))
        answers = await router.runtime.together(
            [
                attempt(router, link, request_of(numbers), expected, deadline, silences)
                for link, numbers in groups
            ]
        )
        failures = [
            (link, answer)
            for (link, _), answer in zip(groups, answers, strict=True)
            if isinstance(answer, WeftError)
        ]
        if not failures:
            return [answer[0] for answer in answers if not isinstance(answer, WeftError)]
        pause = pause_s(tries)
        final = next((each for _, each in failures if not each.retriable), None)
        if final is not None or time.monotonic() + pause >= deadline:
            raise final or failures[-1][1]
        tries += 1
        silences += any(isinstance(each, DeadlineExceeded) for _, each in failures)
        for link, failure in failures:
            await router.again(link, failure, seen, pause / len(failures), deadline)


def by_link(router: Router, numbers: Iterable[int]) -> list[tuple[Link, list[int]]]:
    """Partitions by the link of their primary."""
    groups: dict[int, tuple[Link, list[int]]] = {}
    for number in numbers:
        link = router.link(number)
        groups.setdefault(id(link), (link, []))[1].append(number)
    return list(groups.values())


def _groups(
    router: Router, keys: Sequence[str], positions: Sequence[int]
) -> list[tuple[Link, Sequence[int], list[int]]]:
    """Positions and partitions by the link of their node; no partitions stand for any."""
    if router.alone:
        return [(router.link(_ANY_PARTITION), positions, [])]
    numbers = placement.of_keys((keys[position].encode() for position in positions),
                                router.partitions)  # fmt: skip
    links = {number: router.link(number) for number in set(numbers)}
    groups: dict[int, tuple[Link, list[int], set[int]]] = {}
    of_number: dict[int, tuple[list[int], set[int]]] = {}
    for number, link in links.items():
        of_number[number] = groups.setdefault(id(link), (link, [], set()))[1:]
    for position, number in zip(positions, numbers, strict=True):
        mine, partitions = of_number[number]
        mine.append(position)
        partitions.add(number)
    return [(link, mine, sorted(partitions)) for link, mine, partitions in groups.values()]


def _naming(failure: WeftError, keys: Sequence[str], left: Sequence[int]) -> WeftError:
    """The same error with the keys without an answer."""
    named = ", ".join(repr(keys[position][:100]) for position in left[:_NAMED_MAX])
    more = f" and {len(left) - _NAMED_MAX} more" if len(left) > _NAMED_MAX else ""
    return type(failure)(
        f"{len(left)} of {len(keys)} keys have no answer ({named}{more}): {failure.message}"
    )


def checked_items(items: Mapping[str, Body]) -> tuple[list[str], list[bytes]]:
    """The keys and values of a batch; raises InvalidArgument or TooLarge."""
    if not isinstance(items, Mapping):
        raise arguments.wrong_type("items", "a dict of keys and values", items)
    keys, values = checked_keys("items", list(items)), list(items.values())
    if {*map(type, values)} <= {bytes}:
        data: list[bytes] = values  # type: ignore[assignment]
    else:
        advice = "split it over several keys"
        data = [
            arguments.as_bytes(f"items[{key[:100]!r}]", value, limits.TABLE_VALUE_BYTES_MAX, advice)
            for key, value in zip(keys, values, strict=True)
        ]
    sizes = list(map(len, data))
    if sizes and max(sizes) > limits.TABLE_VALUE_BYTES_MAX:
        key = keys[sizes.index(max(sizes))]
        raise TooLarge(
            f"the value of {key[:100]!r} has {max(sizes)} bytes, at most "
            f"{limits.TABLE_VALUE_BYTES_MAX} are allowed: split it over several keys"
        )
    total = sum(sizes) + sum(map(len, keys))
    if total > limits.TABLE_BATCH_BYTES_MAX:
        raise TooLarge(
            f"the batch has {total} bytes, at most {limits.TABLE_BATCH_BYTES_MAX} are allowed: "
            "insert fewer keys at once"
        )
    return keys, data


def checked_keys(name: str, keys: Iterable[str]) -> list[str]:
    """The distinct keys of a batch, in order."""
    arguments.check_iterable(name, keys, "keys")
    given = list(keys)
    for key in given if {*map(type, given)} - {str} else ():
        arguments.check_text(f"each key of {name}", key, 1, limits.TABLE_KEY_BYTES_MAX)
    distinct = list(dict.fromkeys(given))
    if len(distinct) > limits.TABLE_BATCH_KEYS_MAX:
        raise InvalidArgument(
            f"{name} has {len(distinct)} keys, a batch has at most {limits.TABLE_BATCH_KEYS_MAX}"
        )
    longest = len(max(distinct, key=len, default=""))
    if (
        "" in distinct
        or longest > limits.TABLE_KEY_BYTES_MAX
        or not "".join(distinct).isascii()  # then a character may have several bytes
    ):
        for key in distinct:
            arguments.check_text(f"each key of {name}", key, 1, limits.TABLE_KEY_BYTES_MAX)
    return distinct

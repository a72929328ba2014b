"""Which node takes a request: one look-up in a table with an entry for each partition.

A cluster has one node in this version, so every entry is the same link; the callers route by
partition all the same, and know nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from weft.dht import placement

from .link import Link

T = TypeVar("T")


class Router:
    def __init__(self, link: Link, partitions: int) -> None:
        self._links = [link] * partitions

    def of_partition(self, partition: int) -> Link:
        """The node that holds a message, by the partition in its id or its receipt."""
        return self._links[partition % len(self._links)]

    def of_batch(self, producer: int, batch: int) -> Link:
        return self._links[placement.of_batch(producer, batch, len(self._links))]

    def of_text(self, text: str) -> Link:
        """By a queue's name, a table's key or a dedup key."""
        return self._links[placement.of_text(text, len(self._links))]

    def any(self) -> Link:
        """For what every node can answer."""
        return self._links[0]


def by_link(routed: Iterable[tuple[Link, T]]) -> list[tuple[Link, list[T]]]:
    """Groups what goes to the same node, in order."""
    groups: dict[int, tuple[Link, list[T]]] = {}
    for link, item in routed:
        groups.setdefault(id(link), (link, []))[1].append(item)
    return list(groups.values())

"""ack, nack and extend: receipts go to the primaries of their partitions.

Receipts for one node travel together. When a partition has moved, the node refuses the whole
request, so the client groups the receipts again by the new view: receipts that stayed and receipts
that moved go to different nodes. Settling a receipt twice is harmless; a receipt whose lease did
not survive the move is reported as lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from weft import limits
from weft.client.routing import retry
from weft.client.routing.router import Router
from weft.client.transport.link import Link
from weft.errors import DeadlineExceeded, WeftError
from weft.proto import wire

from .lease import Claim

#: Builds the request for a list of receipts.
Make = Callable[[list[wire.Receipt]], wire.AnyRequest]


async def settle(
    router: Router, claims: Sequence[Claim], make: Make, deadline: float
) -> list[Claim]:
    """Sends the claims to the nodes and returns the claims whose lease is lost."""
    lost: list[Claim] = []
    open_ = list(claims)
    tries = silences = 0
    while open_:
        seen = router.view
        parts = _by_node(router, open_)
        asked = [(link, make([claim.receipt for claim in part])) for link, part in parts]
        ends = await router.runtime.together(
            [
                retry.attempt(router, link, request, wire.Settled, deadline, silences)
                for link, request in asked
            ]
        )
        failures: dict[int, tuple[Link, WeftError]] = {}
        open_ = []
        pause = retry.pause_s(tries)
        for (link, part), end in zip(parts, ends, strict=True):
            if not isinstance(end, WeftError):
                lost += [part[position] for position in end[0].lost]
                continue
            if not end.retriable or time.monotonic() + pause >= deadline:
                raise end
            open_ += part
            failures[id(link)] = (link, end)
        tries += 1
        silences += any(isinstance(failure, DeadlineExceeded) for _, failure in failures.values())
        for link, failure in failures.values():
            await router.again(link, failure, seen, pause / len(failures), deadline)
    return lost


def _by_node(router: Router, claims: Sequence[Claim]) -> list[tuple[Link, list[Claim]]]:
    """Groups the claims by node, split to the size of one request."""
    groups: dict[int, tuple[Link, list[Claim]]] = {}
    for claim in claims:
        link = router.link(router.of_partition(claim.lease.lent.partition))
        groups.setdefault(id(link), (link, []))[1].append(claim)
    return [
        (link, group[start : start + limits.RECEIPTS_MAX])
        for link, group in groups.values()
        for start in range(0, len(group), limits.RECEIPTS_MAX)
    ]

"""ack, nack and extend: receipts go to the primaries of their partitions.

Receipts for one node travel together. When a partition has moved the request is refused as a whole,
so its receipts are sorted again by the new view: those that stayed and those that moved are told to
different nodes. A receipt that was settled before is settled again without harm; one whose lease
did not survive the move comes back as lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from weft import limits
from weft.errors import DeadlineExceeded, WeftError
from weft.proto import wire

from . import retry
from .lease import Claim
from .link import Link
from .router import Router

#: Makes the request of some receipts.
Make = Callable[[list[wire.Receipt]], wire.AnyRequest]


async def settle(
    router: Router, claims: Sequence[Claim], make: Make, deadline: float
) -> list[Claim]:
    """Tells the nodes; gives back the claims whose lease is lost."""
    lost: list[Claim] = []
    open_ = list(claims)
    tries = silences = 0
    while open_:
        seen = router.view
        parts = _by_node(router, open_)
        asked = [(link, make([claim.receipt for claim in part])) for link, part in parts]
        ends = await router.carrier.together(
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
    """The claims of each node, in pieces of one request."""
    groups: dict[int, tuple[Link, list[Claim]]] = {}
    for claim in claims:
        link = router.link(router.of_partition(claim.lease.lent.partition))
        groups.setdefault(id(link), (link, []))[1].append(claim)
    return [
        (link, group[start : start + limits.RECEIPTS_MAX])
        for link, group in groups.values()
        for start in range(0, len(group), limits.RECEIPTS_MAX)
    ]

"""Checks of a reachable node: version, disk space, durability, dead letters, old messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from weft.client.cli import partial
from weft.client.cli.units import count, duration_ms, size
from weft.limits import SECOND_MS
from weft.proto import wire

from .finding import Finding

if TYPE_CHECKING:
    from weft import QueueStats

#: Messages older than this in a queue without a consumer get a warning.
OLD_MS: Final = 3600 * SECOND_MS
#: Maximum number of names in one finding; further ones are only counted.
NAMES_MAX: Final = 5


def check_version(server: str, client_version: str, status: wire.StatusInfo) -> Finding:
    check = f"{server} version"
    if status.version == client_version:
        return Finding("OK", check, f"{client_version}, same as this client")
    return Finding(
        "WARN",
        check,
        f"the node has {status.version}, this client {client_version}",
        "install the same version on both",
    )


def check_space(server: str, status: wire.StatusInfo) -> Finding:
    check = f"{server} disk"
    found = f"{size(status.free_bytes)} free, reserve {size(status.reserve_bytes)}"
    advice = "free space on the node's disk, or consume messages from its queues"
    limit = max(status.limit_bytes, status.reserve_bytes)
    if status.full or status.free_bytes < status.reserve_bytes:
        if status.free_bytes + status.store_bytes < limit:
            advice = "the disk is too small for the reserve: use a larger one, or a smaller reserve"
        return Finding("FAIL", check, f"{found}: pushes are refused below {size(limit)}", advice)
    if status.full_peers:
        return Finding(
            "FAIL", check,
            f"{found}, but {_names(status.full_peers)} at the reserve: some pushes are refused",
            "free space on the disks of these nodes, or consume messages from the queues",
        )  # fmt: skip
    if status.free_bytes < limit + status.reserve_bytes:
        return Finding("WARN", check, f"{found}: pushes will soon be refused", advice)
    return Finding("OK", check, found)


def check_durability(server: str, status: wire.StatusInfo) -> Finding:
    check = f"{server} durability"
    if status.durability == "disk":
        return Finding("OK", check, "disk: a push is fsynced before it is acknowledged")
    return Finding(
        "WARN",
        check,
        f"{status.durability}: a power failure loses the most recently acknowledged pushes",
        "start the node with --durability disk, unless this loss is acceptable",
    )


def check_dead_letters(server: str, queues: Sequence[QueueStats]) -> Finding:
    check = f"{server} dead letters"
    graves = {one.settings.dead_letter for one in queues} - {""}
    full = [(one.name, one.ready) for one in queues if one.name in graves and one.ready]
    if not full:
        return _uncounted(check, queues) or Finding("OK", check, "none")
    return Finding(
        "WARN",
        check,
        _names([f"{name} holds {count(held)}" for name, held in full]),
        f"read the reasons with `weft peek {full[0][0]} --json`, then run"
        f" `weft queue redrive {full[0][0]}`",
    )


def check_forgotten(server: str, queues: Sequence[QueueStats]) -> Finding:
    """Old messages in queues without a consumer; `check_dead_letters` covers dead-letter queues."""
    check = f"{server} old messages"
    graves = {one.settings.dead_letter for one in queues}
    old = [
        one
        for one in queues
        if one.oldest_ms > OLD_MS
        and not one.leased
        and not one.waiting_pops
        and one.name not in graves
    ]
    if not old:
        none = Finding("OK", check, "none in queues without a consumer")
        return _uncounted(check, queues) or none
    return Finding(
        "WARN",
        check,
        _names([f"{one.name}: {duration_ms(one.oldest_ms)}, no consumer" for one in old]),
        f"start a consumer, or `weft queue purge {old[0].name}`",
    )


def _uncounted(check: str, queues: Sequence[QueueStats]) -> Finding | None:
    """A warning if the totals miss partitions: their messages are unknown, not absent."""
    if not (found := partial.words(queues)):
        return None
    return Finding("WARN", check, f"none found, but {found}", "`weft cluster status` says why")


def _names(found: list[str]) -> str:
    more = len(found) - NAMES_MAX
    return "; ".join(found[:NAMES_MAX]) + (f"; and {more} more" if more > 0 else "")

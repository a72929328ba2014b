"""Shares of queues in the output of commands: what a queue asked for, and what the queue got."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from weft.errors import Refused
from weft.proto.settings import SHARE_WHOLE

if TYPE_CHECKING:
    from weft import Client, QueueStats


def total(client: Client) -> float:
    """The sum of the shares of all queues; 0 if the token may not list queues."""
    try:
        return sum(each.settings.share for each in client.list_queues()) / SHARE_WHOLE
    except Refused:
        return 0.0


def rows(stats: QueueStats, total: float) -> list[tuple[str, str]]:
    share = stats.settings.share / SHARE_WHOLE
    asked = f"{share:g}" if share else "an equal part of what other queues do not claim"
    if share and total > 1:
        asked += f" ({_scaled(share, total)})"
    return [("share", asked), ("share got", got(stats))]


def got(stats: QueueStats) -> str:
    """The recent share, or "-" while no queues compete for the nodes."""
    return "-" if stats.share_got is None else f"{stats.share_got:.3f}"


def warn(share: float, total: float) -> None:
    """Says on stderr that the shares of all queues are more than the whole."""
    if share and total > 1:
        click.echo(f"note: {_scaled(share, total)}", err=True)


def _scaled(share: float, total: float) -> str:
    return (
        f"the shares of all queues add up to {total:g}: while all of them have work, this one is "
        f"{share / total:.3f}"
    )

"""The warning for queue totals that miss partitions because nodes did not answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from weft import QueueStats

#: Digits of a node id in the warning.
_ID_DIGITS = 8


def words(queues: Sequence[QueueStats]) -> str:
    """The warning text; "" if the totals count every partition."""
    uncounted = max((each.uncounted_partitions for each in queues), default=0)
    if not uncounted:
        return ""
    silent = sorted({node[:_ID_DIGITS] for each in queues for node in each.missing_nodes})
    nodes = f"; did not answer: {', '.join(silent)}" if silent else "; a failover is in progress"
    return f"partial: the messages of {uncounted:,} partitions are not counted{nodes}"


def warn(queues: Sequence[QueueStats]) -> None:
    """Prints the warning to standard error."""
    if found := words(queues):
        click.secho(found, fg="yellow", err=True)

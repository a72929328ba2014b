"""The `weft cluster` group."""

from __future__ import annotations

import click

from .leave import leave
from .recover import recover
from .status import status
from .up import up


@click.group
def cluster() -> None:
    """Start, inspect, shrink and recover a cluster.

    \b
    Example:
      weft cluster status
    """


cluster.add_command(up)
cluster.add_command(status)
cluster.add_command(leave)
cluster.add_command(recover)

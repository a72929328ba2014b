"""The `weft cluster` group."""

from __future__ import annotations

import click

from .leave import leave
from .status import status
from .up import up


@click.group
def cluster() -> None:
    """Start, look at and shrink a cluster."""


cluster.add_command(up)
cluster.add_command(status)
cluster.add_command(leave)

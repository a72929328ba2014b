"""`weft model`: the group of its subcommands."""

from __future__ import annotations

import click

from .convoy import convoy
from .fabriq import fabriq
from .queue import queue
from .running_queue import advise, compare
from .shares import shares
from .sweep import sweep


@click.group
def model() -> None:
    """Compute and simulate the models of the papers that Weft follows.

    Only `compare` and `advise` need a node: they measure running queues.

    \b
    Example:
      weft model queue --producers 100 --consumers 100 --max-hops 3
    """


for _command in (queue, shares, convoy, fabriq, sweep, compare, advise):
    model.add_command(_command)

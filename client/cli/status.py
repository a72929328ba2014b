"""`weft status`: the counters and sizes of one node."""

from __future__ import annotations

import click
import msgspec

from . import options, output, units


@click.command
@options.everywhere
def status() -> None:
    """Show the status of the node that answers: messages, disk, memory, CPU time.

    With --json the suffix of a field is its unit: _bytes, _ms, _us.

    \b
    Examples:
      weft status
      weft status -s 10.0.0.5:7700 --json
    """
    with options.connect() as client:
        found = client.status()
    if options.wants_json():
        # By name: on the wire the struct is an array.
        output.as_json(msgspec.structs.asdict(found))
        return
    output.facts(
        [
            ("node", found.node),
            ("version", found.version),
            ("up for", units.duration_ms(found.uptime_ms)),
            ("durability", found.durability),
            ("queues", units.count(found.queues)),
            ("messages ready", units.count(found.ready)),
            ("messages leased", units.count(found.leased)),
            ("messages delayed", units.count(found.delayed)),
            ("data", units.size(found.store_bytes)),
            ("disk free", units.size(found.free_bytes)),
            ("disk reserve", units.size(found.reserve_bytes)),
            ("commits", units.count(found.commits)),
            ("CPU time", units.duration_ms(found.cpu_us / 1000)),
            ("memory", units.size(found.rss_bytes)),
        ]
    )

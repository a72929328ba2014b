"""A client process of `python -m bench.table`: the phases, or timed calls of one caller."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

import msgspec

from weft.client.cli.bench import table_phases
from weft.client.cli.bench.child import ready, say
from weft.client.cli.bench.table_phases import INSERT, LOOKUP, MeasuredTable, TableTask

from .systems import BY_NAME


async def _timed(table: MeasuredTable, samples: int, size: int) -> dict[str, list[float]]:
    """Microseconds of each call, one at a time."""
    value, taken = os.urandom(size), {INSERT: [0.0] * samples, LOOKUP: [0.0] * samples}
    clock = time.perf_counter_ns
    for number in range(samples):
        start = clock()
        await table.insert("weft-bench-one", value)
        between = clock()
        await table.lookup("weft-bench-one")
        taken[INSERT][number] = (between - start) / 1000
        taken[LOOKUP][number] = (clock() - between) / 1000
    return taken


async def _run(asked: dict[str, Any]) -> None:
    async with BY_NAME[asked["system"]].open(asked["address"]) as table:
        if "samples" in asked:
            await asyncio.to_thread(ready)
            await _timed(table, asked["samples"] // 10 + 1, asked["size"])  # connects, fills caches
            say(await _timed(table, asked["samples"], asked["size"]))
        else:
            await table_phases.run(msgspec.convert(asked["task"], TableTask), table)


if __name__ == "__main__":
    asyncio.run(_run(json.loads(sys.argv[1])))

"""All bounds, in one table: the largest allowed cost of an operation.

To lower one after an improvement: `python -m tests.costs` prints each figure beside its bound, and
with `--write` puts the measured figures into this file, with the headroom of their kind. To raise
one: do the same, and say in the commit why the operation has to cost more; a reviewer sees the
change as a diff of this table. Nothing here depends on the speed of a machine, except the last two
lines.

Exact counts (messages, frames, writes, syncs, keys) have no headroom. Counts that other versions of
Python, LevelDB or ZeroMQ may change a little have 15 %. Reads and writes have 30 %, as ZeroMQ's
threads wake each other by them, and only if they sleep. So have instructions, which are counted in
units of a reference: interpreters are built differently, and the ratio evens that out only in part.
"""

from __future__ import annotations

from typing import Final

#: Allowed excess of an exact count over its bound, on average: a call that is resent because a busy
#: machine delayed it for seconds, a write of a timer.
STRAY: Final = 0.05


def held(found: dict[str, float]) -> None:
    """Fail with every figure above its bound, and with every figure without one."""
    assert found, "nothing was measured"
    unknown = found.keys() - BOUNDS.keys()
    assert not unknown, f"without a bound: {sorted(unknown)}; python -m tests.costs --write"
    over = [
        f"{name}: {figure:,.3f}, at most {BOUNDS[name]:,}"
        for name, figure in found.items()
        if figure > BOUNDS[name] + STRAY
    ]
    assert not over, "it costs more than it may:\n" + "\n".join(over)


BOUNDS: Final[dict[str, float]] = {
    "push: messages on the wire": 2,
    "push: frames on the wire": 3,
    "push: bytes sent": 195,
    "push: bytes answered": 37,
    "push: store writes": 1,
    "push: store writes, synced": 1,
    "push: keys put": 3,
    "push: keys deleted": 0,
    "push: keys read": 0,
    "push: bytes to the store": 271,
    "pop+ack: messages on the wire": 4,
    "pop+ack: frames on the wire": 5,
    "pop+ack: bytes sent": 67,
    "pop+ack: bytes answered": 242,
    "pop+ack: store writes": 1,
    "pop+ack: store writes, synced": 1,
    "pop+ack: keys put": 1,
    "pop+ack: keys deleted": 2,
    "pop+ack: keys read": 0,
    "pop+ack: bytes to the store": 66,
    "batch push: messages on the wire": 2,
    "batch push: frames on the wire": 3,
    "batch push: bytes sent": 149_560,
    "batch push: bytes answered": 42,
    "batch push: store writes": 1,
    "batch push: store writes, synced": 1,
    "batch push: keys put": 3,
    "batch push: keys deleted": 0,
    "batch push: keys read": 0,
    "batch push: bytes to the store": 149_629,
    "batch pop+ack: messages on the wire": 4,
    "batch pop+ack: frames on the wire": 5,
    "batch pop+ack: bytes sent": 69,
    "batch pop+ack: bytes answered": 149_610,
    "batch pop+ack: store writes": 1,
    "batch pop+ack: store writes, synced": 1,
    "batch pop+ack: keys put": 1,
    "batch pop+ack: keys deleted": 2,
    "batch pop+ack: keys read": 0,
    "batch pop+ack: bytes to the store": 66,
    "multicast to 10: payloads stored": 1,
    "multicast to 10: store writes": 1,
    "multicast to 10: store writes, synced": 1,
    "multicast to 10: bytes to the store over the body": 420,
    "multicast to 10: Python calls, node": 300,
    "map of 4,000: messages on the wire": 10,
    "map of 4,000: store writes": 2,
    "map of 4,000: store writes, synced": 2,
    "map of 4,000: Python calls a task, submitter": 1.2,
    "map of 4,000: Python calls a task, worker": 10.5,
    "map of 4,000: Python calls a task, reader": 2.35,
    "pop+commit: messages on the wire": 4,
    "pop+commit: frames on the wire": 5,
    "pop+commit: bytes sent": 306,
    "pop+commit: bytes answered": 256,
    "pop+commit: store writes": 1,
    "pop+commit: store writes, synced": 1,
    "pop+commit: keys put": 4,
    "pop+commit: keys deleted": 2,
    "pop+commit: keys read": 0,
    "pop+commit: bytes to the store": 373,
    "pop+commit: Python calls, client": 275,
    "pop+commit: Python calls, node": 515,
    "push: Python calls, client": 76,
    "push: Python calls, node": 175,
    "pop+ack: Python calls, client": 224,
    "pop+ack: Python calls, node": 365,
    "batch push: Python calls, client": 137,
    "batch push: Python calls, node": 225,
    "batch pop+ack: Python calls, client": 230,
    "batch pop+ack: Python calls, node": 379,
    "gRPC push: Python calls, node": 342,
    "gRPC push: store writes": 1,
    "gRPC push: store writes, synced": 1,
    "gRPC pop: Python calls, node": 333,
    "gRPC pop: store writes": 0,
    "gRPC pop: store writes, synced": 0,
    "gRPC ack: Python calls, node": 329,
    "gRPC ack: store writes": 1,
    "gRPC ack: store writes, synced": 1,
    "gRPC push of 32: Python calls, node": 246,
    "gRPC push of 32: store writes": 1,
    "gRPC push of 32: store writes, synced": 1,
    "gRPC pop of 32: Python calls, node": 246,
    "gRPC pop of 32: store writes": 0,
    "gRPC pop of 32: store writes, synced": 0,
    "gRPC ack of 32: Python calls, node": 246,
    "gRPC ack of 32: store writes": 1,
    "gRPC ack of 32: store writes, synced": 1,
    "push: reads and writes, node": 1.314,
    "push: bytes written, node": 313,
    "push: bytes read, node": 16,
    "push: reads and writes, client": 1,
    "push: bytes written, client": 16,
    "push: bytes read, client": 16,
    "pop+ack: reads and writes, node": 1.3,
    "pop+ack: bytes written, node": 109,
    "pop+ack: bytes read, node": 16,
    "pop+ack: reads and writes, client": 1,
    "pop+ack: bytes written, client": 16,
    "pop+ack: bytes read, client": 16,
    "batch push: reads and writes, node": 2.6,
    "batch push: bytes written, node": 149_761,
    "batch push: bytes read, node": 16,
    "batch push: reads and writes, client": 1,
    "batch push: bytes written, client": 16,
    "batch push: bytes read, client": 16,
    "batch pop+ack: reads and writes, node": 1.3,
    "batch pop+ack: bytes written, node": 140,
    "batch pop+ack: bytes read, node": 16,
    "batch pop+ack: reads and writes, client": 1,
    "batch pop+ack: bytes written, client": 16,
    "batch pop+ack: bytes read, client": 16,
    "push: system calls, node": 18,
    "push: system calls, client": 6,
    "push: syncs, node": 1,
    "pop+ack: system calls, node": 30,
    "pop+ack: system calls, client": 12,
    "pop+ack: syncs, node": 1,
    "batch push: system calls, node": 20,
    "batch push: system calls, client": 8,
    "batch push: syncs, node": 2,
    "batch pop+ack: system calls, node": 30,
    "batch pop+ack: system calls, client": 14,
    "batch pop+ack: syncs, node": 1,
    "push: instructions": 0.099,
    "pop+ack: instructions": 0.151,
    "batch push: instructions": 0.271,
    "batch pop+ack: instructions": 0.371,
    "batch push: payloads held at once": 3.648,
    "batch pop+ack: payloads held at once": 2.424,
    "push: time in floors": 4,
    "batch: CPU in floors": 8,
}

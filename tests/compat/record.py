"""Records the output of a version: ``python -m tests.compat.record``.

Run once per released version, on that version. The program writes one frame of every request,
answer and message between nodes, and the data directory of a node that has used every kind of
record. The tests in this folder read the recordings with the present code.
"""

from __future__ import annotations

import json
import shutil
import tarfile
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Final

import weft
from tests.process.live_node import LiveNode
from weft.dht import messages
from weft.proto import wire

from .samples import sample, structs_of

FOLDER: Final = Path(__file__).parent / "recorded"


def record_frames() -> dict[str, dict[str, str]]:
    """Hexadecimal frames by kind and tag."""
    frames: dict[str, dict[str, str]] = {"request": {}, "answer": {}, "message": {}}
    for kind in structs_of(wire.AnyRequest):
        call = wire.Call(wire.WIRE_VERSION, 7, sample(kind), "token")  # type: ignore[arg-type]
        frames["request"][_tag(kind)] = wire.encode(call).hex()
    for kind in structs_of(wire.AnyAnswer):
        reply = wire.Reply(7, sample(kind))  # type: ignore[arg-type]
        frames["answer"][_tag(kind)] = wire.encode(reply).hex()
    for kind in structs_of(messages.AnyMessage):
        frames["message"][_tag(kind)] = messages.encode(sample(kind)).hex()
    return frames


def _tag(kind: type) -> str:
    return str(kind.__struct_config__.tag)  # type: ignore[attr-defined]


def fill(address: str) -> None:
    """Use every kind of record; `test_store.py` expects exactly this content."""
    with weft.connect(address) as client:
        client.create_queue("plain", lease_ms=60_000, max_deliveries=2, dead_letter="dead")
        client.create_queue("dead")
        client.create_queue("in-order", ordered=True)
        plain = client.queue("plain")
        plain.push_many([b"m%d" % number for number in range(100)])
        plain.push(b"later", delay_ms=86_400_000)
        plain.push(b"L" * 100_000)  # in a segment, beside LevelDB
        acked = plain.pop_many(40, wait_ms=5000)
        plain.ack_many(acked)
        plain.push(b"headed", headers={"k": "v"}, dedup_key="once", priority=3)
        in_order = client.queue("in-order")
        in_order.push_many([b"o0", b"o1", b"o2"])
        in_order.pop(wait_ms=5000)  # the lease of an ordered queue is on disk
        failing = client.queue("plain").pop(wait_ms=5000)
        while failing is not None and failing.deliveries <= 2:
            failing.nack(reason="a recorded failure")
            failing = plain.pop(wait_ms=5000) if client.queue("dead").stats().ready == 0 else None
        client.kv.insert("row", b"value")
        client.kv.append("row", b"+more")


def main() -> None:
    folder = FOLDER / version("weft")
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record_frames(), indent=1, sort_keys=True)
    (folder / "frames.json").write_text(text + "\n", encoding="ascii")
    with tempfile.TemporaryDirectory() as scratch:
        data = Path(scratch) / "data"
        with LiveNode(data).start() as node:
            fill(node.grpc)
            node.stop()
        for name in ("address.json", "lock"):
            (data / name).unlink(missing_ok=True)
        with tarfile.open(folder / "store.tar.xz", "w:xz") as archive:
            archive.add(data, "data")
        shutil.rmtree(data)
    print(f"recorded {folder.name}: {sorted(path.name for path in folder.iterdir())}")


if __name__ == "__main__":
    main()

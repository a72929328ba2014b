"""A damaged data directory: the node refuses and names the place, or everything is there.

Real nodes make two directories, one closed by a stop, one left behind by kill -9. Each case damages
a file of a copy and starts a node on it: most in this process, from the directory to the last pop
(a tenth of the time), some as a real `weft serve`. No message may silently be missing, and none may
be extra: a confirmed ack stays done. WEFT_TEST_SEED makes other cases.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.process.live_node import LiveNode, NodeEnded
from tests.process.wire_client import Silence, WireClient
from weft.errors import StorageError
from weft.persistence.directory import DataDirectory
from weft.proto import wire
from weft.proto.settings import Settings
from weft.server.engine.engine import Engine

pytestmark = pytest.mark.process

SEED: Final = int(os.environ.get("WEFT_TEST_SEED", 2026))
#: Cases per directory, driven in this process and as real nodes.
CASES: Final = 45
REAL_CASES: Final = 5
#: Each start turns the log into a table: so there are several of both.
STARTS: Final = 4
BATCHES: Final = 12
BATCH: Final = 40
QUEUES: Final = {"plain": Settings(), "other": Settings(lease_ms=60_000, max_messages=100_000)}

Contents = dict[str, list[bytes]]


class Made(NamedTuple):
    """A data directory, and its expected contents."""

    data: Path
    contents: Contents


@pytest.fixture(scope="module", params=["closed", "killed"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Made:
    data = tmp_path_factory.mktemp("damage") / request.param
    rng = random.Random(SEED)
    left: dict[str, set[bytes]] = {name: set() for name in QUEUES}
    with LiveNode(data) as node:
        for start in range(STARTS):
            with WireClient(node.start().zmq) as client:
                for name, settings in QUEUES.items():
                    client.create(name, settings)
                    _push_and_ack(client, name, start, rng, left[name])
            if request.param == "closed" or start + 1 < STARTS:
                assert node.stop() == 0
    return Made(data, {name: sorted(bodies) for name, bodies in left.items()})


def _push_and_ack(
    client: WireClient, queue: str, start: int, rng: random.Random, left: set[bytes]
) -> None:
    """Push, then ack one message of some batches and all of others; keep count in `left`."""
    for number in range(start * BATCHES, (start + 1) * BATCHES):
        tails = [rng.randbytes(rng.choice((5, 50, 900))) for _ in range(BATCH)]
        bodies = [b"%d-%d " % (number, index) + tail for index, tail in enumerate(tails)]
        client.push(queue, 1, number, bodies)
        left |= set(bodies)
    for loan in client.pop(queue, BATCHES // 3 * BATCH, lease_ms=60_000):
        one = loan.lent.batch % 2 == 0
        settled = client.ack(queue, [loan.receipt([loan.lent.first] if one else None)])
        assert settled.done == (1 if one else loan.lent.count)
        left -= set(loan.bodies[: settled.done])


# --- damage ---------------------------------------------------------------------------------


def _flip(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _scribble(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    data[at : at + 100] = rng.randbytes(len(data[at : at + 100]))


def _blank(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    data[at : at + 512] = bytes(len(data[at : at + 512]))


def _cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def _cut_a_little(data: bytearray, rng: random.Random) -> None:
    del data[-rng.randint(1, 64) :]


def _lengthen(data: bytearray, rng: random.Random) -> None:
    data += rng.randbytes(rng.randint(1, 300))


CHANGES: Final[list[Callable[[bytearray, random.Random], None]]] = [
    _flip, _flip, _scribble, _blank, _cut, _cut_a_little, _lengthen,
]  # fmt: skip


def _damage(data: Path, rng: random.Random) -> str:
    """Damage one file; return a description."""
    files = sorted(path for path in data.rglob("*") if path.is_file())
    path = rng.choice(files)
    name = str(path.relative_to(data))
    if rng.random() < 0.15 or not path.stat().st_size:
        path.unlink()
        return f"{name} deleted"
    change = rng.choice(CHANGES)
    content = bytearray(path.read_bytes())
    change(content, rng)
    path.write_bytes(content)
    return f"{name} {change.__name__.strip('_')}"


# --- reaction of a node ---------------------------------------------------------------------


def _contents_or_refusal(data: Path) -> Contents | str:
    try:
        return _contents(data)
    except StorageError as error:
        return error.message


def _contents(data: Path) -> Contents:
    """All messages, by a node without a network; raises StorageError."""
    directory = DataDirectory.open(data)
    try:
        store = directory.open_store()
        try:
            entropy = itertools.count(1)
            engine = Engine(
                store,
                partitions=directory.partitions,
                durability="disk",
                cache_bytes=0,
                entropy=lambda: next(entropy),
            )
            engine.recover(time.time_ns() // 1000)
            return {name: sorted(_pop_all(engine, name)) for name in engine.state.queues}
        finally:
            store.close()
    finally:
        directory.close()


def _pop_all(engine: Engine, queue: str) -> list[bytes]:
    bodies: list[bytes] = []
    while True:
        engine.begin(time.time_ns() // 1000)
        engine.handle(wire.Pop(queue, 4096, 0, 3_600_000), (), "the test")
        engine.end()
        (answered,) = engine.answers()
        assert isinstance(answered.answer, wire.Popped), answered.answer
        if not answered.answer.lent:
            return bodies
        for frame in answered.payload:
            bodies += wire.decode_payload(frame).bodies


def _real_contents(node: LiveNode) -> Contents:
    """The same from a real node; raises NodeEnded if the node refuses to start, or exits."""
    with WireClient(node.start().zmq, lives=lambda: node.process.poll() is None) as client:
        try:
            answer, _ = client.ask(wire.ListQueues())
            assert isinstance(answer, wire.Queues)
            return {info.name: sorted(client.drain(info.name)) for info in answer.queues}
        except Silence:
            raise NodeEnded(node.wait(100), node.log) from None


def test_undamaged_directories_are_whole(made: Made, tmp_path: Path) -> None:
    data = shutil.copytree(made.data, tmp_path / "copy")
    assert _contents(data) == made.contents
    assert sum(map(len, made.contents.values())) > BATCH * BATCHES


def test_damage_is_named_or_harmless(made: Made, tmp_path: Path) -> None:
    outcomes: Counter[str] = Counter()
    for case in range(CASES):
        data = shutil.copytree(made.data, tmp_path / "copy")
        what = f"case {case} of seed {SEED}: " + _damage(data, random.Random(SEED * 1000 + case))
        found = _contents_or_refusal(data)
        if isinstance(found, str):
            outcomes["refused"] += 1
            assert str(data) in found, f"{what}: {found}"
            assert "\n" not in found, f"{what}: {found}"
        else:
            outcomes["whole"] += 1
            assert found == made.contents, f"{what}: {_difference(made.contents, found)}"
        shutil.rmtree(data)
    print(f"\n{made.data.name}: {dict(outcomes)}")
    assert outcomes["refused"] > CASES // 4
    assert outcomes["whole"] > 0


def test_damage_under_a_real_node(made: Made, tmp_path: Path) -> None:
    for case in range(CASES, CASES + REAL_CASES):
        data = shutil.copytree(made.data, tmp_path / "copy")
        what = f"case {case} of seed {SEED}: " + _damage(data, random.Random(SEED * 1000 + case))
        with LiveNode(data) as node:
            try:
                contents = _real_contents(node)
            except NodeEnded as ended:
                _check_end(ended, data, what)
            else:
                assert contents == made.contents, f"{what}: {_difference(made.contents, contents)}"
                assert node.stop() == 0
        shutil.rmtree(data)


def test_a_damaged_payload_ends_the_node_when_it_is_popped(made: Made, tmp_path: Path) -> None:
    """Payloads are not read at a start, so this damage is found late, at the pop."""
    data = shutil.copytree(made.data, tmp_path / "copy")
    table = max((data / "store").glob("*.ldb"), key=lambda path: path.stat().st_size)
    content = bytearray(table.read_bytes())
    # Keys are sorted: payloads (b) come before heads (h), so the front of a table is payload.
    content[len(content) // 4] ^= 0x40
    table.write_bytes(content)
    with LiveNode(data) as node, pytest.raises(NodeEnded) as ended:
        _real_contents(node)
    assert ended.value.code == 3
    assert str(table) in ended.value.log
    _check_end(ended.value, data, f"{table.name} flipped")


def _check_end(ended: NodeEnded, data: Path, what: str) -> None:
    print(f"\n{what}: exit {ended.code}: {ended.log.splitlines()[-1]}")
    assert ended.code in (1, 3), f"{what}: {ended}"
    assert "Traceback" not in ended.log, f"{what}: {ended}"
    lines = [line for line in ended.log.splitlines() if line.startswith("weft serve: ")]
    assert len(lines) == 1, f"{what}: {ended}"
    assert str(data) in lines[0], f"{what}: {ended}"


def _difference(expected: Contents, found: Contents) -> str:
    return ", ".join(
        f"{name}: {len(set(expected[name]) - set(found.get(name, [])))} missing, "
        f"{len(set(found.get(name, [])) - set(expected[name]))} too many"
        for name in expected
    )

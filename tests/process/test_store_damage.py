"""A damaged LevelDB directory: an error that names the file, or all acknowledged writes are there.

A child process makes the directories by writing sealed records: one closes its store, others are
killed with SIGKILL. Then files are changed at random. The expectation for each:

- closed: an error that names the file, or exactly the written records;
- killed, every write synced: an error, or exactly the acknowledged writes (the write in progress
  at the kill may be there or not, as without damage);
- killed, some writes not synced: an error, or everything up to the last synced write and perhaps
  more, without a gap. Cutting off un-synced writes is the damage that nothing on this disk shows.

This file is also the child: it runs itself.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import plyvel
import pytest

from weft.errors import StorageError, StoreDamaged
from weft.limits import KIB
from weft.persistence import (
    layout,
    leveldb_database,
    leveldb_log,
    leveldb_table,
    manifest,
    segment_pointer,
    segments,
)
from weft.persistence.leveldb import LevelStore
from weft.persistence.store import Change

SEED = int(os.environ.get("WEFT_DAMAGE_SEED", "20260"))
DAMAGES = int(os.environ.get("WEFT_DAMAGE_COUNT", "100"))
#: Writes by one child, enough for some tables, and a log or two, at this buffer size.
WRITES = 400
BUFFER_BYTES = 64 * KIB
#: So that some payloads are in segments, and there are several.
LARGE_BYTES = 1000
SEGMENT_BYTES = 24 * KIB
#: In a child that mixes, one write in this many is synced.
SYNC_EVERY = 9


def changes_of(number: int) -> list[Change]:
    """The changes of write ``number``: a batch is added, an old one deleted, a state updated."""
    rng = random.Random(number)
    data = rng.randbytes(rng.choice([10, 100, 1000, 3000]))
    rows = [
        (layout.head(number % 4, number), data[:20]),
        (layout.body(number % 4, number), data),
        (layout.partition(number % 4), b"%d" % number),
    ]
    changes: list[Change] = [(key, layout.seal(key, value)) for key, value in rows]
    old = number - 1 - number % 200
    if old > 0:
        changes += [(layout.head(old % 4, old), None), (layout.body(old % 4, old), None)]
    return changes


def contents(store: LevelStore) -> dict[bytes, bytes]:
    """Every record, each verified."""
    rows = dict(store.scan(b"", b"\xff"))
    for key, record in rows.items():
        layout.unseal(key, record, store.path)
    return rows


def child(path: str, mode: str, count: int) -> None:
    """Write, and report after each write how far everything is acknowledged; then close."""
    leveldb_database.__dict__["WRITE_BUFFER_BYTES"] = BUFFER_BYTES
    segment_pointer.__dict__["LARGE_BYTES"] = LARGE_BYTES
    segments.__dict__["SEGMENT_BYTES"] = SEGMENT_BYTES
    store = LevelStore(path, create=True)
    for number in range(1, count + 1):
        sync = mode == "synced" or number % SYNC_EVERY == 0
        store.write(changes_of(number), sync=sync)
        os.write(1, b"%d %d\n" % (number, number if sync else 0))
    store.close()


@dataclass(frozen=True)
class Made:
    path: Path
    #: Everything up to this write must be there, or the damage be detected.
    low: int
    #: No write after this one was begun.
    high: int


def make(path: Path, mode: str, count: int, kill_after: int | None = None) -> Made:
    process = subprocess.Popen(
        [sys.executable, __file__, str(path), mode, str(count)], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if len(said) == kill_after:
            process.send_signal(signal.SIGKILL)
    process.stdout.close()
    assert process.wait() == (0 if kill_after is None else -signal.SIGKILL)
    numbers = [tuple(map(int, line.split())) for line in said]
    written, synced = numbers[-1][0], max(synced for _, synced in numbers)
    if kill_after is None:
        return Made(path, written, written)
    return Made(path, synced, min(written + 1, count))


def check(made: Made, states: dict[int, dict[bytes, bytes]]) -> str | int:
    """Open and read all: the error's text, or the number of writes present, which must suffice."""
    try:
        store = LevelStore(made.path, create=False)
    except StorageError as error:
        return error.message
    try:
        found = contents(store)
    except StoreDamaged as error:
        return error.message
    finally:
        store.close()
    for count in range(made.high, made.low - 1, -1):
        if found == states[count]:
            return count
    raise AssertionError(
        f"{made.path} opened without a word and holds {len(found)} rows, "
        f"not those of {made.low} to {made.high} writes"
    )


def copied(made: Made, to: Path) -> Made:
    shutil.copytree(made.path, to)
    return replace(made, path=to)


def damage(folder: Path, rng: random.Random) -> tuple[str, str]:
    """Damage one file once; return the kind of damage, and the file's name."""
    sizes = {file.name: file.stat().st_size for file in sorted(folder.iterdir())}
    # Tables are many: the kind of file is drawn first, so that the few others get their share.
    kind = rng.choice(sorted({name.split("-")[0].split(".")[-1] for name in sizes}))
    name = rng.choice([n for n in sizes if n.split("-")[0].split(".")[-1] == kind])
    file, size = folder / name, sizes[name]
    what = rng.choice(["remove", "cut", "flip", "zero"] if size else ["remove"])
    at = rng.choice([rng.randrange(size), max(0, size - 1 - rng.randrange(200))]) if size else 0
    data = bytearray(file.read_bytes())
    if what == "remove":
        file.unlink()
    elif what == "cut":
        file.write_bytes(data[:at])
    elif what == "flip":
        data[at] ^= rng.randrange(1, 256)
        file.write_bytes(data)
    else:
        length = rng.choice([1, 100, 32 * KIB])
        data[at : at + length] = bytes(len(data[at : at + length]))
        file.write_bytes(data)
    return f"{what} {name} at {at} of {size}", name


@pytest.fixture(scope="module")
def states() -> dict[int, dict[bytes, bytes]]:
    """The contents of a store after each number of writes."""
    rows: dict[bytes, bytes] = {}
    after = {0: dict(rows)}
    for number in range(1, WRITES + 1):
        for key, value in changes_of(number):
            rows.pop(key, None)
            if value is not None:
                rows[key] = value
        after[number] = dict(rows)
    return after


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("closed") / "store", "synced", WRITES)


@pytest.fixture(scope="module", params=["closed", "killed synced", "killed mixed"])
def bases(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, closed: Made
) -> list[Made]:
    if request.param == "closed":
        mixed = make(tmp_path_factory.mktemp("mixed") / "store", "mixed", WRITES - 50)
        return [closed, mixed]
    folder = tmp_path_factory.mktemp("killed")
    rng = random.Random(SEED)
    mode = request.param.split()[1]
    kills = [rng.randrange(1, WRITES - 1) for _ in range(3)]
    return [make(folder / str(n), mode, WRITES, kill) for n, kill in enumerate(kills)]


def test_damage_is_named_or_harmless(
    bases: list[Made], states: dict[int, dict[bytes, bytes]], tmp_path: Path
) -> None:
    print(f"WEFT_DAMAGE_SEED={SEED}")
    rng = random.Random(SEED)
    before = {
        base.path: check(copied(base, tmp_path / f"base{n}"), states)
        for n, base in enumerate(bases)
    }
    noticed = 0
    for turn in range(DAMAGES // 3 + 1):
        base = rng.choice(bases)
        copy = copied(base, tmp_path / f"copy{turn}")
        what, name = damage(copy.path, rng)
        result = check(copy, states)
        if isinstance(result, str):
            noticed += 1
            # No other file records the name of the newer of two logs, so the error cannot name it.
            gone = what.startswith("remove") and name.endswith(".log")
            named = name in result or (gone and "a newer log was removed" in result)
            assert named, f"{what}: the message does not name it: {result}"
            assert "Restore" in result
            assert isinstance(check(copy, states), str), f"{what}: noticed once, then forgotten"
        elif result != before[base.path]:
            print(f"{what}: {before[base.path]} writes became {result}, synced were {base.low}")
        shutil.rmtree(copy.path)
    print(f"{noticed} noticed")
    assert noticed > DAMAGES // 10


def test_a_killed_writer_loses_nothing_acknowledged(
    states: dict[int, dict[bytes, bytes]], tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    for turn in range(4):
        mode = rng.choice(["synced", "mixed"])
        made = make(tmp_path / str(turn), mode, WRITES, rng.randrange(1, WRITES - 1))
        if mode == "mixed":
            # A killed process loses no write at all: the operating system has them.
            made = replace(made, low=made.high - 1)
        assert check(made, states) == check(made, states)


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_every_cut_of_the_newest_log_is_noticed(
    end: str, states: dict[int, dict[bytes, bytes]], closed: Made, tmp_path: Path
) -> None:
    base = closed if end == "closed" else make(tmp_path / "base", "synced", WRITES, 350)
    log = max(base.path.glob("*.log"))
    data = log.read_bytes()
    rng = random.Random(SEED)
    whole = len(list(leveldb_log.records(data, str(log))))
    for size in [0, 1, 7, *rng.sample(range(len(data) - 1), 10)]:
        copy = copied(base, tmp_path / "copy")
        (copy.path / log.name).write_bytes(data[:size])
        lost = whole - len(list(leveldb_log.records(data[:size], str(log))))
        result = check(copy, states)
        # A killed child may have begun one write that was not acknowledged.
        assert isinstance(result, str) or lost <= base.high - base.low
        assert isinstance(result, int) or log.name in result
        shutil.rmtree(copy.path)


def test_the_reader_of_leveldbs_files_agrees_with_leveldb(closed: Made, tmp_path: Path) -> None:
    current = manifest.read(str(closed.path))
    tables = [closed.path / entry.name for entry in current.tables.values()]
    named = {file.name for file in tables}
    found = {file.name for file in closed.path.glob("*.ldb")}
    # A close during a compaction leaves the files written so far: the newest ones.
    assert named <= found
    assert all(file > max(named) for file in found - named)
    # When LevelDB has nothing more to do, the two sets are equal.
    copy = copied(closed, tmp_path / "copy").path
    with closing(plyvel.DB(str(copy))) as database:
        database.compact_range()
    rest = manifest.read(str(copy)).tables.values()
    assert {entry.name for entry in rest} == {file.name for file in copy.glob("*.ldb")} != set()
    assert not any(leveldb_table.is_damaged(file.read_bytes()) for file in tables)
    for file in [Path(current.path), *closed.path.glob("*.log")]:
        assert leveldb_log.first_bad_checksum(file.read_bytes(), str(file)) is None


def test_a_damaged_table_is_named_by_the_write_that_a_compaction_failed(
    closed: Made, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(closed.path, copy)
    victim = max(copy.glob("*.ldb"), key=lambda file: file.stat().st_size)
    data = bytearray(victim.read_bytes())
    data[10] ^= 1  # in its first block: opening reads only the last
    victim.write_bytes(data)
    store = LevelStore(copy, create=False)

    def compact_and_write() -> None:
        # A compaction raises nothing: LevelDB keeps its error for the next write.
        store.compact(b"\0", b"\xff")
        store.write([(b"z", b"")], sync=False)

    with pytest.raises(StoreDamaged, match=victim.name):
        compact_and_write()
    with pytest.raises(StoreDamaged, match=victim.name):
        store.get(b"z")
    store.close()


def test_a_cut_table_is_named_before_anybody_reads_it(closed: Made, tmp_path: Path) -> None:
    copy = copied(closed, tmp_path / "copy").path
    victim = max(copy.glob("*.ldb"), key=lambda file: file.stat().st_size)
    size = victim.stat().st_size
    os.truncate(victim, size - 1)
    with pytest.raises(StoreDamaged, match=f"{victim.name} has {size - 1} bytes, but {size} in"):
        LevelStore(copy, create=False)


def test_an_emptied_log_before_another_is_noticed(closed: Made, tmp_path: Path) -> None:
    # Two logs, as while LevelDB turns the older one into a table: the newest is renumbered.
    first = max(closed.path.glob("*.log"))
    copy = copied(closed, tmp_path / "copy").path
    records = list(leveldb_log.records(first.read_bytes(), str(first)))
    assert len(records) > 2
    second = first.with_name(f"{int(first.stem) + 500:06d}.log").name
    (copy / second).write_bytes(first.read_bytes())
    (copy / first.name).write_bytes(b"")
    with pytest.raises(StoreDamaged, match=rf"{first.name} has lost writes: .*{second}"):
        LevelStore(copy, create=False)


if __name__ == "__main__":
    child(sys.argv[1], sys.argv[2], int(sys.argv[3]))

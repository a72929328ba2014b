"""The hash table of three real nodes, through both clients, while a node is killed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest

import weft
from weft import aio
from weft.testing import Cluster, cluster

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(600)]

PATIENT_MS = 100_000


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with cluster(3) as nodes:
        nodes.settled()
        yield nodes


@pytest.fixture
def client(three: Cluster) -> Iterator[weft.Client]:
    with weft.connect(three.servers, timeout_ms=PATIENT_MS) as client:
        yield client


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"{request.node.name}/"


def test_batches_versions_and_scans(client: weft.Client, name: str) -> None:
    kv = client.kv
    items = {f"{name}{number:04}": b"%d" % number for number in range(1000)}
    kv.insert_many(items)
    assert kv.lookup_many([*items, "absent"]) == items
    found = kv.lookup_entries([f"{name}0001"])[f"{name}0001"]
    assert found.version == kv.lookup_entry(f"{name}0001").version  # type: ignore[union-attr]
    with pytest.raises(weft.VersionMismatch, match=f"version {found.version}"):
        kv.insert(found.key, b"x", if_version=found.version + 1)
    assert kv.insert(found.key, b"x", if_version=found.version) > found.version
    with pytest.raises(weft.VersionMismatch):
        kv.remove(found.key, if_version=found.version)
    keys, after, more = list[str](), "", True
    while more:
        page = kv.scan(name, limit=300, after=after)
        assert len(page) <= 300
        keys += [entry.key for entry in page]
        after, more = page.after, page.more
    assert keys == sorted(items)
    assert kv.remove_many([*items, "absent"]) == 1000
    assert len(kv.scan(name)) == 0


def test_a_watch_has_every_change_of_every_node(client: weft.Client, name: str) -> None:
    with client.kv.watch(name) as changes:
        items = {f"{name}{number}": b"%d" % number for number in range(100)}
        client.kv.insert_many(items)
        client.kv.insert("elsewhere", b"x")
        client.kv.remove(f"{name}0")
        wanted = set(items.items()) | {(f"{name}0", None)}
        seen = set[tuple[str, bytes | None]]()
        while seen != wanted:
            change = next(changes)
            assert not change.resync
            seen.add((change.key, change.value))
        position = changes.position
        assert changes.pending == 0
    client.kv.insert(f"{name}1", b"missed?")
    with client.kv.watch(name, after=position) as changes:
        change = next(changes)
        assert (change.key, change.value) == (f"{name}1", b"missed?")


def test_an_asyncio_watch_and_a_time_to_live(three: Cluster, name: str) -> None:
    async def scenario() -> None:
        async with aio.connect(three.servers, timeout_ms=PATIENT_MS) as client:
            key = f"{name}k"
            async with client.kv.watch(key=key) as changes:
                began = time.monotonic()
                await client.kv.insert(key, b"v", ttl_ms=1500)
                await client.kv.insert(f"{key}2", b"v")
                assert (await anext(changes)).value == b"v"
                gone = await anext(changes)
                assert (gone.key, gone.value) == (key, None)
                assert time.monotonic() - began >= 1.5
            assert await client.kv.lookup(key) is None

    asyncio.run(scenario())


def test_a_large_value(client: weft.Client, name: str) -> None:
    value = bytes(range(256)) * 16 * 1024
    client.kv.insert(name, value)
    assert client.kv.lookup(name) == value
    with pytest.raises(weft.TooLarge):
        client.kv.append(name, b"x")


def test_no_write_is_lost_or_done_twice_while_a_node_is_killed(
    three: Cluster, client: weft.Client, name: str
) -> None:
    """Appends, batches and a watch go on; the history tells what happened."""
    log = f"{name}log"
    seen: dict[str, bytes | None] = {}

    def watch() -> None:
        with (
            weft.connect(three.servers, timeout_ms=PATIENT_MS) as other,
            other.kv.watch(name) as changes,
        ):
            started.set()
            for change in changes:
                if change.resync:
                    after, more = "", True
                    while more:
                        page = other.kv.scan(name, limit=10_000, after=after)
                        seen.update({entry.key: entry.value for entry in page})
                        after, more = page.after, page.more
                else:
                    seen[change.key] = change.value
                if f"{name}end" in seen:
                    return

    started = threading.Event()
    watcher = threading.Thread(target=watch)
    watcher.start()
    assert started.wait(100)
    killer = threading.Timer(1.0, three.kill, [0])
    killer.start()
    count, end = 0, time.monotonic() + 8
    batches: dict[str, bytes] = {}
    while time.monotonic() < end:
        line = b"%d\n" % count
        assert client.kv.append(log, line) > 0
        items = {f"{name}{count}/{number}": line for number in range(20)}
        client.kv.insert_many(items)
        batches |= items
        count += 1
    killer.join()
    assert client.kv.lookup(log) == b"".join(b"%d\n" % number for number in range(count))
    for start in range(0, len(batches), 5000):
        some = dict(list(batches.items())[start : start + 5000])
        assert client.kv.lookup_many(some) == some
    client.kv.insert(f"{name}end", b"")
    watcher.join(100)
    assert not watcher.is_alive(), "the watcher did not see the end"
    assert {key: seen.get(key) for key in batches} == batches
    three.start(0)

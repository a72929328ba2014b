"""Blocks over TCP: proofs, refusals, names that would leave the folder, damage, limits."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from weft.errors import InvalidArgument, PermissionDenied, StorageFull, Unavailable
from weft.tasks.blocks import block_server, block_store
from weft.tasks.blocks.block_client import BlockClient, WantedPart
from weft.tasks.blocks.block_file import BlockDamaged
from weft.tasks.blocks.block_frames import (
    ANSWER,
    CHALLENGE_BYTES,
    FETCH,
    INVALID,
    REQUEST,
    REQUEST_BYTES_MAX,
    BlockRequest,
    challenge_of,
    receive,
)
from weft.tasks.blocks.block_server import BlockServer
from weft.tasks.blocks.block_store import BlockStore
from weft.tasks.blocks.job_key import proof

TTL_S = 60.0
PARTS = [b"one", b"", b"three" * 10_000]


class Keys:
    """The keys of two jobs, as the hash table has them."""

    def __init__(self, **keys: bytes) -> None:
        self.keys = keys

    def find(self, job: str) -> bytes | None:
        return self.keys.get(job)


@pytest.fixture
def store(tmp_path: Path) -> BlockStore:
    return BlockStore(str(tmp_path / "spill"))


@pytest.fixture
def server(store: BlockStore) -> Iterator[BlockServer]:
    keys: Any = Keys(mine=b"a" * 32, other=b"b" * 32)
    server = BlockServer(store, keys, "app", "127.0.0.1")
    yield server
    server.close()


def client(**keys: bytes) -> BlockClient:
    found: Any = Keys(**keys)
    return BlockClient("app", found)


@pytest.fixture
def reader() -> Iterator[BlockClient]:
    made = client(mine=b"a" * 32)
    yield made
    made.close()


def test_parts_of_blocks_are_fetched_and_verified(
    store: BlockStore, server: BlockServer, reader: BlockClient
) -> None:
    first = store.put("app", "mine", "x", PARTS, TTL_S)
    second = store.put("app", "mine", "y", [b"", b"2", b""], TTL_S)
    wanted = [WantedPart("x", first), WantedPart("none", 1), WantedPart("y", second)]
    found = list(reader.fetch(server.address, "mine", wanted, 2))
    assert found[0] == PARTS[2]
    assert isinstance(found[1], BlockDamaged)
    assert found[2] == b""
    (wrong,) = reader.fetch(server.address, "mine", [WantedPart("x", second)])
    assert isinstance(wrong, BlockDamaged)
    assert server.sent_bytes >= len(PARTS[2])


def test_another_jobs_block_is_refused(store: BlockStore, server: BlockServer) -> None:
    checksum = store.put("app", "other", "x", PARTS, TTL_S)
    reader = client(other=b"a" * 32)  # the key of the job `mine`
    with pytest.raises(PermissionDenied, match="does not prove the key of the job other"):
        list(reader.fetch(server.address, "other", [WantedPart("x", checksum)]))
    with pytest.raises(PermissionDenied, match="has no job third"):
        list(reader.fetch(server.address, "third", [WantedPart("x", checksum)]))
    with pytest.raises(PermissionDenied):
        reader.forget(server.address, "other")
    assert store.read("app", "other", "x", 0, checksum) == PARTS[0]


@pytest.mark.parametrize("name", ["../other/x", "..", "", "/etc/passwd", "a/b", ".x", "a\0b", "-x"])
def test_a_name_never_leaves_the_folder_of_its_job(
    store: BlockStore, server: BlockServer, reader: BlockClient, name: str
) -> None:
    store.put("app", "other", "x", PARTS, TTL_S)
    with pytest.raises(InvalidArgument, match="name must be"):
        list(reader.fetch(server.address, "mine", [WantedPart(name, 1)]))
    with pytest.raises(InvalidArgument):
        store.open("app", name, "x", 0)


def test_a_link_in_the_folder_is_not_followed(
    store: BlockStore, server: BlockServer, reader: BlockClient, tmp_path: Path
) -> None:
    checksum = store.put("app", "other", "x", PARTS, TTL_S)
    mine = Path(store.job_folder("app", "mine"))
    (mine / "link").symlink_to(Path(store.folder) / "app" / "other" / "x")
    (found,) = reader.fetch(server.address, "mine", [WantedPart("link", checksum)])
    assert isinstance(found, BlockDamaged)
    os.rmdir(store.job_folder("app", "jobless"))
    (Path(store.folder) / "app" / "jobless").symlink_to(Path(store.folder) / "app" / "other")
    with pytest.raises(BlockDamaged):
        store.open("app", "jobless", "x", 0)


def test_a_recorded_request_is_refused_on_another_connection(
    store: BlockStore, server: BlockServer
) -> None:
    store.put("app", "mine", "x", [b"secret"], TTL_S)
    host, port = server.address.split(":")
    body = msgspec.msgpack.encode(BlockRequest(FETCH, "app", "mine", ["x"]))
    with socket.create_connection((host, int(port))) as first:
        challenge = receive(first, CHALLENGE_BYTES)
        recorded = REQUEST.pack(len(body)) + proof(b"a" * 32, challenge_of(challenge, 0), body)
        first.sendall(recorded + body)
        assert ANSWER.unpack(receive(first, ANSWER.size))[0] == 0
    with socket.create_connection((host, int(port))) as second:
        receive(second, CHALLENGE_BYTES)
        second.sendall(recorded + body)
        status, size, _ = ANSWER.unpack(receive(second, ANSWER.size))
        assert status == 2
        receive(second, size)
        assert second.recv(1) == b""


def test_garbage_and_long_requests_end_the_connection(server: BlockServer) -> None:
    host, port = server.address.split(":")
    with socket.create_connection((host, int(port))) as caller:
        receive(caller, CHALLENGE_BYTES)
        caller.sendall(REQUEST.pack(3) + b"p" * 32 + b"\xff\xff\xff")
        assert ANSWER.unpack(receive(caller, ANSWER.size))[0] == INVALID
    with socket.create_connection((host, int(port))) as caller:
        receive(caller, CHALLENGE_BYTES)
        caller.sendall(REQUEST.pack(REQUEST_BYTES_MAX + 1))
        assert caller.recv(1) == b""


def test_a_damaged_or_truncated_block_is_noticed(
    store: BlockStore, server: BlockServer, reader: BlockClient
) -> None:
    checksum = store.put("app", "mine", "x", PARTS, TTL_S)
    path = Path(store.path("app", "mine", "x"))
    whole = path.read_bytes()
    for data in (b"\0" + whole[1:], whole[:-1], b"", whole[:-40] + b"\xff" * 40):
        path.write_bytes(data)
        (found,) = reader.fetch(server.address, "mine", [WantedPart("x", checksum)])
        assert isinstance(found, BlockDamaged)
    path.write_bytes(whole)
    assert list(reader.fetch(server.address, "mine", [WantedPart("x", checksum)])) == [b"one"]


def test_a_server_that_ended_is_unavailable(
    store: BlockStore, server: BlockServer, reader: BlockClient
) -> None:
    checksum = store.put("app", "mine", "x", PARTS, TTL_S)
    wanted = [WantedPart("x", checksum)]
    assert list(reader.fetch(server.address, "mine", wanted)) == [b"one"]
    server.close()
    with pytest.raises(Unavailable):
        list(reader.fetch(server.address, "mine", wanted))


def test_more_readers_than_connections_wait_for_their_turn(
    store: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_server, "CONNECTIONS_MAX", 2)
    keys: Any = Keys(mine=b"a" * 32)
    server = BlockServer(store, keys, "app", "127.0.0.1")
    checksum = store.put("app", "mine", "x", PARTS, TTL_S)
    found: list[Any] = []

    def read() -> None:
        reader = client(mine=b"a" * 32)
        found.extend(reader.fetch(server.address, "mine", [WantedPart("x", checksum)]))
        reader.close()

    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    server.close()
    assert found == [b"one"] * 8


def test_a_full_spill_disk_is_named(store: BlockStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "writev", full)
    with pytest.raises(StorageFull, match=r"spill folder .*spill.*--spill"):
        store.put("app", "mine", "x", PARTS, TTL_S)
    monkeypatch.undo()
    assert os.listdir(store.job_folder("app", "mine")) == []


def test_an_unusable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidArgument, match="cannot be used"):
        BlockStore(str(tmp_path / "file" / "spill"))


def test_processes_agree_on_the_id_of_a_store(store: BlockStore) -> None:
    assert BlockStore(store.folder).id == store.id
    assert store.sweep() == 0


def test_the_default_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_store, "default_folder", lambda: str(tmp_path / "blocks"))
    BlockStore()
    monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    with pytest.raises(InvalidArgument, match="belongs to another user"):
        BlockStore()
    BlockStore(str(tmp_path / "named"))


def test_a_connection_that_cannot_be_taken_does_not_end_the_server(
    store: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the limit of open files, say."""
    failures = [RuntimeError("can't start new thread"), OSError(errno.EMFILE, "too many")]
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "weft-block" and failures:
            raise failures.pop()
        start(thread)

    monkeypatch.setattr(block_server, "REFUSED_S", 0.01)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    keys: Any = Keys(a=b"k" * 32)
    checksum = store.put("app", "a", "block", [b"data"], TTL_S)
    served = BlockServer(store, keys, "app", "127.0.0.1")
    try:
        client, wanted = BlockClient("app", keys), [WantedPart("block", checksum)]
        found: list[bytes | BlockDamaged] = []
        while not found:
            try:
                found = list(client.fetch(served.address, "a", wanted))
            except Unavailable:
                pass
        assert (found, failures) == ([b"data"], [])
        client.close()
    finally:
        served.close()


@pytest.mark.parametrize("answer", [b"\x09" + b"x" * 12, b"\x00" + b"\xff" * 12])
def test_another_program_at_the_port_of_a_dead_worker_is_no_block_server(answer: bytes) -> None:
    """It is not believed about the size of its answer either."""
    keys: Any = Keys(a=b"k" * 32)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"c" * CHALLENGE_BYTES)
                connection.recv(1 << 16)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(Unavailable, match="is no block server"):
            list(BlockClient("app", keys).fetch(address, "a", [WantedPart("block", None)]))
        thread.join()

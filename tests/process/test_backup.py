"""`weft backup` of a cluster that is in use, and loses a node meanwhile; `weft restore`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

import weft
from tests.contract.served import eventually
from weft.client.cli.main import cli
from weft.errors import LeaseLost, WeftError
from weft.proto import weft_pb2 as pb
from weft.proto import weft_pb2_grpc
from weft.server.security import token_file
from weft.testing import Cluster, cluster

pytestmark = pytest.mark.process

BEFORE = 2000


def command(made: Cluster, *words: str) -> Any:
    told = CliRunner().invoke(cli, [*words, "--json", "-s", ",".join(made.servers)])
    assert told.exit_code == 0, (told.output, told.exception)
    return json.loads(told.stdout)


class Load:
    """Pushes and acks continuously, and records when each was confirmed."""

    def __init__(self, made: Cluster) -> None:
        self._client = weft.connect(made.servers, timeout_ms=100_000)
        self._queue = self._client.queue("busy")
        self.acked: dict[bytes, float] = {}
        self.ack_tried: dict[bytes, float] = {}
        self._over = False
        self._threads = [threading.Thread(target=work) for work in (self._push, self._ack)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        for thread in self._threads:
            thread.join()
        self._client.close()

    def _push(self) -> None:
        number = 0
        while not self._over:
            number += 1
            self._queue.push(b"during %d" % number)

    def _ack(self) -> None:
        while not self._over:
            try:
                messages = self._queue.pop_many(5, wait_ms=100)
                now = time.monotonic()
                self.ack_tried.update({message.body: now for message in messages})
                self._queue.ack_many(messages)
            except LeaseLost:  # of a node that was killed
                continue
            now = time.monotonic()
            self.acked.update({message.body: now for message in messages})
            time.sleep(0.01)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(1, data=tmp_path_factory.mktemp("one"), durability="os") as made:
        yield made


def bodies(made: Cluster, queue: str) -> Counter[bytes]:
    seen: Counter[bytes] = Counter()
    with weft.connect(made.servers) as client:
        while messages := client.queue(queue).pop_many(1000, wait_ms=100):
            seen.update(message.body for message in messages)
    return seen


def test_a_cluster_in_use_to_a_file_and_into_another_one(tmp_path: Path, other: Cluster) -> None:
    file = str(tmp_path / "all.weft")
    with cluster(3, durability="os") as made:
        made.settled()
        client = made.client()
        fill(client)
        with Load(made) as load:
            eventually(lambda: bool(load.acked))
            time.sleep(0.5)
            killer = threading.Timer(0.1, made.kill, [2])
            killer.start()
            began = time.monotonic()
            said = command(made, "backup", file)
            killer.join()
            time.sleep(0.2)
        assert said["queues"] == 4
    checked = command(other, "restore", file, "--check")
    assert checked["messages"] == said["messages"]
    assert set(checked["queues"]) == {"busy", "still", "frail", "dead"}

    first = command(other, "restore", file)
    assert (first["queues_made"], first["batches_known"]) == (4, 0)
    assert first["messages"] == said["messages"]
    again = command(other, "restore", file)
    assert (again["messages"], again["queues_made"], again["rows"]) == (0, 0, 0)
    assert (again["batches_known"], again["rows_kept"]) == (first["batches"], 3)
    _as_it_was(other)
    seen = bodies(other, "busy")
    assert set(seen.values()) == {1}
    before = {b"before %d" % n for n in range(BEFORE)}
    assert before - seen.keys() <= load.ack_tried.keys(), "a message is missing"
    early = {body for body, at in load.acked.items() if at < began}
    assert early, "the load acked nothing before the backup: the test shows nothing"
    assert not early & seen.keys(), "what was acked before came back"


def fill(client: weft.Client) -> None:
    client.create_queue("dead", lease_ms=1234)
    client.create_queue("frail", max_deliveries=1, dead_letter="dead")
    client.create_queue("busy")
    client.create_queue("still", retention_ms=86_400_000)
    client.queue("busy").push_many([b"before %d" % n for n in range(BEFORE)])
    still = client.queue("still")
    undisturbed(lambda: twice(still), still)
    still.push(b"late", delay_ms=3_600_000)
    frail = client.queue("frail")
    undisturbed(lambda: bury(frail), frail, client.queue("dead"))
    for number in range(3):
        client.kv.insert(f"key {number}", b"%d" % number)


def undisturbed(act: Callable[[], None], *queues: weft.Queue) -> None:
    """Start again with empty queues when a lease ended because its partition moved.

    After a move it is unknown whether that delivery counts.
    """
    while True:
        try:
            return act()
        except LeaseLost:
            for queue in queues:
                queue.purge()


def twice(queue: weft.Queue) -> None:
    """A message that was delivered twice and returned."""
    queue.push(b"twice", headers={"a": "b"}, key="k")
    for _ in range(2):
        popped(queue).nack()


def bury(queue: weft.Queue) -> None:
    """A message that was returned with its only delivery."""
    queue.push(b"bad")
    popped(queue).nack(reason="broken")


def popped(queue: weft.Queue) -> weft.Message:
    found = queue.pop(wait_ms=60_000)
    assert found is not None
    return found


def _as_it_was(made: Cluster) -> None:
    client = made.client()
    still = client.queue("still")
    assert still.stats().settings.retention_ms == 86_400_000
    assert still.stats().delayed == 1
    message = still.pop(wait_ms=60_000)
    assert message is not None, still.stats()
    assert (message.body, message.headers, message.key) == (b"twice", {"a": "b"}, "k")
    assert message.deliveries == 3
    dead = client.queue("dead")
    assert dead.stats().settings.lease_ms == 1234
    (letter,) = dead.peek()
    assert letter.dead_reason == "1 deliveries, the last one nacked: broken"
    assert dead.redrive() == 1
    assert [m.body for m in client.queue("frail").pop_many(10, wait_ms=60_000)] == [b"bad"]
    assert [client.kv.lookup(f"key {n}") for n in range(3)] == [b"0", b"1", b"2"]


def test_one_queue_and_what_is_refused(tmp_path: Path, other: Cluster) -> None:
    client = other.client()
    client.create_queue("one")
    client.queue("one").push_many([b"x"] * 10)
    file = tmp_path / "one.weft"
    assert command(other, "backup", str(file), "--queue", "one")["messages"] == 10
    servers = ("-s", ",".join(other.servers), "--json")
    for words, code in (
        (("backup", str(file)), "INVALID_ARGUMENT"),  # the file exists
        (("backup", str(tmp_path / "n"), "--queue", "nobody"), "QUEUE_NOT_FOUND"),
    ):
        told = CliRunner().invoke(cli, [*words, *servers])
        assert json.loads(told.stderr)["error"]["code"] == code
    assert not (tmp_path / "n").exists()
    client.update_queue("one", lease_ms=5000)
    told = CliRunner().invoke(cli, ["restore", str(file), "--again", *servers])
    error = json.loads(told.stderr)["error"]
    assert error["code"] == "QUEUE_EXISTS"
    assert "lease_ms is 5000, not 30000" in error["message"]
    assert client.queue("one").stats().ready == 10
    client.delete_queue("one")
    assert command(other, "restore", str(file))["messages"] == 10
    assert command(other, "restore", str(file), "--again")["messages"] == 10
    assert client.queue("one").stats().ready == 20
    file.write_bytes(file.read_bytes()[:-5])
    told = CliRunner().invoke(cli, ["restore", str(file), "--again", *servers])
    assert json.loads(told.stderr)["error"]["code"] == "BACKUP_DAMAGED"
    assert client.queue("one").stats().ready == 20


def test_a_purge_by_mistake_is_undone_by_the_documented_commands(tmp_path: Path) -> None:
    """The commands of docs/how-to/backup-and-restore.md, as printed, against a cluster in use."""
    text = (Path(__file__).parents[2] / "docs/how-to/backup-and-restore.md").read_text()
    section = text.split("## A purge by mistake")[1]
    commands = re.findall(r"^weft .*$", section.split("```")[1], re.M)
    assert [words.split()[1] for words in commands] == ["backup", "queue", "restore", "restore"]
    backup, purge, restore, again = (_without_comment(words) for words in commands)
    with cluster(3, durability="os") as made:
        made.settled()
        client = made.client()
        client.create_queue("orders")
        client.create_queue("payments")
        orders, payments = client.queue("orders"), client.queue("payments")
        for start in range(0, 200, 20):
            orders.push_many([b"old %d" % n for n in range(start, start + 20)])
        payments.push_many([b"payment %d" % n for n in range(50)])
        assert _run(made, tmp_path, backup)["messages"] == 250
        acked: set[bytes] = set()
        while len(acked) < 70:
            messages = orders.pop_many(35, wait_ms=10_000)
            orders.ack_many(messages)
            acked |= {message.body for message in messages}
        payments.ack_many(payments.pop_many(5, wait_ms=10_000))
        orders.push_many([b"new %d" % n for n in range(30)])
        leased = orders.pop(wait_ms=10_000)
        assert leased is not None
        _run(made, tmp_path, purge)
        orders.push(b"after the purge")
        back = 200 - len(acked)
        first = _run(made, tmp_path, restore)
        assert (first["mode"], first["messages"], first["messages_skipped"]) == (
            "undo", back, len(acked),
        )  # fmt: skip
        second = _run(made, tmp_path, again)
        assert (second["messages"], second["messages_skipped"]) == (0, 200)
        seen = bodies(made, "orders")
        old = {b"old %d" % n for n in range(200)}
        assert seen == Counter({*(old - acked), b"after the purge"})
        assert payments.stats().ready == 45


def _without_comment(words: str) -> list[str]:
    return words.partition("#")[0].split()[1:]


def _run(made: Cluster, folder: Path, words: list[str]) -> Any:
    """A documented command, run in a folder; only --json is added."""
    shown = subprocess.run(
        [sys.executable, "-m", "weft.client.cli.main", *words, "--json"], cwd=folder, check=True,
        capture_output=True, text=True, env={**os.environ, "WEFT_SERVERS": ",".join(made.servers)},
    )  # fmt: skip
    return json.loads(shown.stdout or "null")


def test_one_queue_into_another(tmp_path: Path, other: Cluster) -> None:
    client = other.client()
    client.create_queue("from", lease_ms=4000)
    client.create_queue("beside")
    client.create_queue("line", ordered=True, lease_ms=4000)
    client.queue("from").push_many([b"%d" % n for n in range(10)])
    client.queue("beside").push(b"x")
    file = str(tmp_path / "some.weft")
    command(other, "backup", file, "--queue", "from", "--queue", "beside")

    def refused(*words: str) -> tuple[str, str]:
        told = CliRunner().invoke(
            cli, ["restore", *words, "--json", "-s", ",".join(other.servers)]
        )  # fmt: skip
        error = json.loads(told.stderr)["error"]
        return error["code"], error["message"]

    assert refused(file, "--queue", "nobody")[0] == "QUEUE_NOT_FOUND"
    assert "it has beside, from" in refused(file, "--queue", "nobody")[1]
    for words in (
        ("--into", "copy"),
        ("--queue", "from", "--into", "from"),
        ("--queue", "from", "--queue", "beside", "--into", "copy"),
    ):
        assert refused(file, *words)[0] == "INVALID_ARGUMENT", words
    code, message = refused(file, "--queue", "from", "--into", "line")
    assert (code, "ordered is True, not False" in message) == ("QUEUE_EXISTS", True)
    code, message = refused(file, "--queue", "from", "--into", "beside")
    assert (code, "lease_ms is 30000, not 4000" in message) == ("QUEUE_EXISTS", True)
    (tmp_path / "not.weft").write_text("hello")
    assert refused(str(tmp_path / "not.weft"), "--queue", "from")[0] == "BACKUP_DAMAGED"
    assert [q.name for q in client.list_queues("copy")] == []

    words = ("restore", file, "--queue", "from", "--into", "copy")
    first, second = command(other, *words), command(other, *words)
    assert (first["mode"], first["messages"], first["queues_made"]) == ("copy", 10, 1)
    assert (second["messages"], second["messages_skipped"]) == (0, 10)
    assert client.queue("copy").stats().settings.lease_ms == 4000
    assert client.queue("from").stats().ready == 10
    assert bodies(other, "copy") == Counter({b"%d" % n: 1 for n in range(10)})


def test_a_token_for_one_queue_is_enough_for_its_backup(tmp_path: Path) -> None:
    tokens_file = tmp_path / "tokens.json"
    boss = token_file.create(tokens_file, "boss", ["admin:*", "push:*", "table:*"], 0)[1]
    own = token_file.create(tokens_file, "own", ["admin:mine"], 0)[1]
    with cluster(1, durability="os", tokens=str(tokens_file)) as made:
        with weft.connect(made.servers, token=boss) as client:
            for name in ("mine", "theirs"):
                client.create_queue(name)
                client.queue(name).push(b"x")
        told = {}
        for name, words in {
            "mine": ["--queue", "mine"], "theirs": ["--queue", "theirs"], "all": [],
        }.items():  # fmt: skip
            words = ["backup", str(tmp_path / name), *words, "--json", "-s", made.servers[0]]
            told[name] = CliRunner().invoke(cli, words, env={"WEFT_TOKEN": own})
        assert json.loads(told["mine"].stdout)["messages"] == 1
        for name in ("theirs", "all"):
            assert json.loads(told[name].stderr)["error"]["code"] == "PERMISSION_DENIED"
        for _ in range(2):
            words = ["restore", str(tmp_path / "mine"), "--json", "-s", made.servers[0]]
            assert CliRunner().invoke(cli, words, env={"WEFT_TOKEN": own}).exit_code == 0


def test_plain_grpc_has_the_same_two_verbs(other: Cluster) -> None:
    client = other.client()
    client.create_queue("plain")
    client.queue("plain").push_many([b"a", b"b"])
    with grpc.insecure_channel(other.servers[0]) as channel:
        stub = weft_pb2_grpc.QueueStub(channel)  # type: ignore[no-untyped-call]
        kept = [
            kept
            for partition in range(256)
            for kept in stub.Snapshot(
                pb.SnapshotRequest(partition=partition, queue="plain")
            ).batches
        ]
        assert [part.count for each in kept for part in each.parts] == [2]
        request = pb.RestoreRequest(queue="plain", backup=b"b" * 16, number=0, kept=kept[0])
        assert [stub.Restore(request).duplicate for _ in range(2)] == [False, True]
        with pytest.raises(grpc.RpcError, match="16 bytes"):
            stub.Restore(pb.RestoreRequest(queue="plain", backup=b"b", kept=kept[0]))
    assert client.queue("plain").stats().ready == 4
    with pytest.raises(WeftError):
        client.queue("nobody").stats()

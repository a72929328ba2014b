"""Topics in a backup: restored with their bindings, into another cluster and into the same one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import weft
from weft.client.backup.file import VERSION_PLAIN, End, QueueKept, Start, TopicKept, Writer
from weft.client.cli.main import cli
from weft.proto import wire
from weft.testing import Cluster, cluster

pytestmark = pytest.mark.process


@pytest.fixture
def other() -> Iterator[Cluster]:
    with cluster() as nodes:
        yield nodes


def command(nodes: Cluster, *words: str, code: int = 0) -> Any:
    done = CliRunner().invoke(cli, [*words, "--json", "-s", ",".join(nodes.servers)])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout if code == 0 else done.stderr)


def topics_of(client: weft.Client) -> dict[str, list[wire.Binding]]:
    return {each.name: each.bindings for each in client.list_topics()}


def test_topics_and_bindings_come_back(node: Cluster, other: Cluster, tmp_path: Path) -> None:
    path = str(tmp_path / "all.weft")
    with node.client() as client:
        for queue in ("audit", "europe"):
            client.create_queue(queue)
        for topic in ("prices", "empty"):
            client.create_topic(topic)
        client.bind("prices", "audit")
        client.bind("prices", "europe", headers={"region": "eu"}, prefixes={"symbol": "EUR"})
        client.topic("prices").push(b"before")
        expected = topics_of(client)
        assert command(node, "backup", path)["topics"] == 2
        assert sorted(command(node, "restore", path, "--check")["topics"]) == ["empty", "prices"]

        done = command(other, "restore", path)
        assert (done["topics_made"], done["bindings_made"], done["messages"]) == (2, 2, 1)
        again = command(other, "restore", path)
        assert (again["topics_made"], again["bindings_made"], again["messages"]) == (0, 0, 0)
        with other.client() as there:
            assert topics_of(there) == expected
            ids = there.topic("prices").push(b"new", headers={"region": "eu", "symbol": "EURUSD"})
            assert list(ids) == ["audit", "europe"]

        # In the cluster of the backup: what is missing comes back, what was changed stays.
        client.unbind("prices", "audit")
        client.bind("prices", "europe", headers={"region": "us"})
        client.delete_topic("empty")
        done = command(node, "restore", path)
        assert (done["mode"], done["topics_made"], done["bindings_made"]) == ("undo", 1, 1)
        bound = topics_of(client)
        assert bound["empty"] == []
        assert {each.queue: each.headers for each in bound["prices"]} == {
            "europe": {"region": "us"},
            "audit": {},
        }


def test_a_backup_of_single_queues_has_no_topics(node: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "one.weft"
    with node.client() as client:
        client.create_queue("single")
        client.create_topic("feeding")
        client.bind("feeding", "single")
    assert command(node, "backup", str(path), "--queue", "single")["topics"] == 0
    assert path.read_bytes().startswith(b"weft backup %d\n" % VERSION_PLAIN)


def test_a_topic_with_the_name_of_a_queue_is_refused_before_any_message(
    other: Cluster, tmp_path: Path
) -> None:
    path = tmp_path / "clash.weft"
    with Writer(path) as file:
        file.write(Start(b"i" * 16, "0", "another", 256, "now", None))
        file.write(QueueKept("q", {}))
        file.write(TopicKept("taken", [wire.Binding("q")]))
        file.write(End(1, 0, 0, 0, "then", 1))
    with other.client() as client:
        client.create_queue("taken")
        error = command(other, "restore", str(path), code=2)["error"]
        assert error["code"] == "INVALID_ARGUMENT"
        assert "taken is a queue" in error["message"]
        assert topics_of(client) == {}


def test_a_push_to_the_queue_command_names_the_topic_command(node: Cluster) -> None:
    with node.client() as client:
        client.create_topic("news")
    for words in (("push", "news", "x"), ("pop", "news"), ("queue", "show", "news")):
        message = command(node, *words, code=1)["error"]["message"]
        assert "`weft topic push news`" in message
        assert "client.topic('news').push" in message


def test_an_empty_topic_is_shown(node: Cluster) -> None:
    with node.client() as client:
        client.create_topic("nobody")
    assert command(node, "topic", "show", "nobody") == {"name": "nobody", "bindings": []}
    done = CliRunner().invoke(cli, ["topic", "show", "nobody", "-s", node.servers[0]])
    assert done.exit_code == 0
    assert done.stdout.splitlines() == ["queue  filter"]
    error = command(node, "topic", "show", "missing", code=1)["error"]
    assert error["code"] == "TOPIC_NOT_FOUND"

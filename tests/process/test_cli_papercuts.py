"""The command line on a real node: exit codes, ordered queues, create or update, dead letters.

Also delayed messages and cancel; and the same through the Python client.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from click.testing import CliRunner, Result

import weft
from weft import testing
from weft.client.cli.main import cli

pytestmark = pytest.mark.process

_names = count()


@pytest.fixture(scope="module")
def node() -> Iterator[testing.Cluster]:
    with testing.cluster() as running:
        yield running


@pytest.fixture
def client(node: testing.Cluster) -> Iterator[weft.Client]:
    with weft.connect(node.servers) as client:
        yield client


@pytest.fixture
def name() -> str:
    return f"q{next(_names)}"


class Shell:
    def __init__(self, servers: str) -> None:
        self._servers = servers

    def __call__(self, *words: str, code: int = 0) -> Result:
        result = CliRunner().invoke(cli, [*words, "--servers", self._servers])
        assert result.exit_code == code, (words, result.output, result.exception)
        return result

    def json(self, *words: str, code: int = 0) -> Any:
        lines = self(*words, "--json", code=code).stdout
        return json.loads(lines)


@pytest.fixture
def shell(node: testing.Cluster) -> Shell:
    return Shell(",".join([node.servers] if isinstance(node.servers, str) else node.servers))


def _rows(shown: str) -> list[list[str]]:
    """The rows of `weft queue show`, as words."""
    return [line.split() for line in shown.splitlines()]


def test_pop_of_an_empty_queue_has_its_own_exit_code(shell: Shell, name: str) -> None:
    shell("queue", "create", name)
    assert shell("pop", name, code=3).stdout == ""
    assert shell("pop", name, "--wait-ms", "10", "--json", code=3).stdout == ""
    shell("push", name, "x")
    assert shell("pop", name).stdout == "x\n"
    shell("pop", f"{name}.none", code=1)
    shell("pop", code=2)


def test_an_ordered_queue_is_created_and_shown(shell: Shell, name: str) -> None:
    shell("queue", "create", name, "--ordered")
    shell("queue", "create", name, "--ordered")  # again: the same settings
    assert ["ordered", "yes"] in _rows(shell("queue", "show", name).stdout)
    assert shell.json("queue", "show", name)["settings"]["ordered"] is True
    shell("queue", "create", f"{name}.plain")
    assert ["ordered", "no"] in _rows(shell("queue", "show", f"{name}.plain").stdout)


def test_create_or_update(shell: Shell, client: weft.Client, name: str) -> None:
    assert shell.json("queue", "create", name, "--lease-ms", "1000", "--update")["created"]
    assert "exists" in shell("queue", "create", name, "--lease-ms", "2000", code=1).stderr
    assert not shell.json("queue", "create", name, "--lease-ms", "2000", "--update")["created"]
    changed = shell("queue", "create", name, "--max-messages", "10", "--update").stdout
    assert changed == f"{name} has these settings now\n", "not that it had them"
    again = ("queue", "create", name, "--lease-ms", "2000", "--max-messages", "10")
    assert shell(*again).stdout == f"{name} exists with these settings\n"
    settings = client.queue(name).stats().settings
    assert (settings.lease_ms, settings.max_messages) == (2000, 10), "what is not named stays"
    assert client.create_queue(name, update=True) is False
    assert client.queue(name).stats().settings == settings
    with pytest.raises(weft.InvalidArgument, match="ordered"):
        client.create_queue(name, ordered=True, update=True)
    with pytest.raises(weft.QueueExists):
        client.create_queue(name, lease_ms=5000)


def test_a_dead_letter_is_shown_with_its_story(
    shell: Shell, client: weft.Client, name: str
) -> None:
    client.create_queue(name, max_deliveries=2, dead_letter=f"{name}.dead")
    queue = client.queue(name)
    queue.push(b"bad")
    for _ in range(2):
        message = queue.pop(wait_ms=5000)
        assert message is not None
        assert (message.dead_origin, message.dead_deliveries) == ("", 0)
        message.nack(reason="no such customer")
    (dead,) = client.queue(f"{name}.dead").peek()
    assert (dead.dead_origin, dead.dead_deliveries, dead.deliveries) == (name, 2, 0)
    reason = "2 deliveries, the last one nacked: no such customer"
    assert dead.dead_reason == reason
    shown = shell.json("peek", f"{name}.dead")
    assert (shown["dead_origin"], shown["dead_deliveries"]) == (name, 2)
    assert shown["dead_reason"] == reason
    heading, row = shell("peek", f"{name}.dead").stdout.splitlines()
    assert "came from" in heading
    assert "deliveries there" in heading
    assert name in row
    assert reason in row


def test_delayed_messages_are_listed_and_cancelled(
    shell: Shell, client: weft.Client, name: str
) -> None:
    client.create_queue(name)
    queue = client.queue(name)
    later = queue.push(b"later", delay_ms=7_200_000)
    sooner = queue.push(b"sooner", delay_ms=3_600_000)
    assert queue.peek(10) == []
    found = queue.peek(10, delayed=True)
    assert [message.id for message in found] == [sooner, later]
    assert found[0].due_at == pytest.approx(time.time() + 3600, abs=60)
    table = shell("peek", name, "--delayed").stdout.splitlines()
    assert "due in" in table[0]
    assert "sooner" in table[1]
    assert shell.json("peek", name, "--delayed", "-n", "1")["id"] == str(sooner)
    assert f"cancelled {later}" in shell("cancel", name, str(later)).stdout
    assert "has no message" in shell("cancel", name, str(later), code=3).stderr
    assert queue.cancel(sooner) is True
    assert queue.cancel(str(sooner)) is False
    assert queue.stats().delayed == 0
    shell("cancel", name, "nonsense", code=2)


def test_a_leased_message_is_not_cancelled(shell: Shell, client: weft.Client, name: str) -> None:
    client.create_queue(name)
    queue = client.queue(name)
    pushed = queue.push(b"x")
    message = queue.pop()
    assert message is not None
    with pytest.raises(weft.MessageLeased) as caught:
        queue.cancel(pushed)
    assert (caught.value.code, caught.value.retriable) == ("MESSAGE_LEASED", False)
    assert "MESSAGE_LEASED" in shell("cancel", name, str(pushed), "--json", code=1).stderr
    message.nack()
    assert queue.cancel(pushed) is True
